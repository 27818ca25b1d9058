package pcapfilter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

const (
	// MaxExpressionBytes is the longest expression that is compiled.
	MaxExpressionBytes = 4096
	// MaxSnapLen is the longest part of a packet that can be kept, in bytes:
	// libpcap's MAXIMUM_SNAPLEN.
	MaxSnapLen = 262144
)

// LinkType is the link-layer header type of the packets that a filter reads, as libpcap's DLT_ value on Linux.
type LinkType int32

const (
	// LinkEthernet is DLT_EN10MB: Ethernet, and Linux' loopback and veth.
	LinkEthernet LinkType = 1
	// LinkRaw is DLT_RAW as Linux numbers it: packets begin with the IP header,
	// as on tun and ipip devices. Files call the same type LINKTYPE_RAW, 101.
	LinkRaw LinkType = 12
)

// Limits bound one compilation. They count work, not time, so that the verdict on a filter is the same on every machine
// and under every load.
type Limits struct {
	// Steps are branches taken by libpcap. A usual filter takes some ten thousand, a list of 200 hosts 40 million. A
	// CPU takes some 600 million a second.
	Steps uint32
	// MemoryPages is the sandbox' memory in pages of 64 KiB. Usual filters need less than 40.
	MemoryPages uint32
}

// Most are the limits of filters: a longer compilation is refused. Lists that fill MaxExpressionBytes with a keyword in
// each part stay below.
var Most = Limits{Steps: 500_000_000, MemoryPages: 896}

// Compiler compiles filters. It is safe for concurrent use, and compiles one at a time to bound its memory. The code
// that it runs cannot be preempted: a garbage collection of the process waits until a compilation has ended.
type Compiler struct {
	limits Limits
	// lock guards the fields below. Unlike a mutex, a channel lets a caller stop waiting when its context ends.
	lock    chan struct{}
	binary  []byte
	sandbox *sandbox
	closed  bool
}

// New returns a compiler. It is cheap, because the first Compile loads libpcap. It fails if the binary was built without
// libpcap, which `make pcapfilter` builds.
func New(limits Limits) (*Compiler, error) {
	binary, err := readModule(artifacts)
	if err != nil {
		return nil, err
	}
	return &Compiler{limits: limits, lock: make(chan struct{}, 1), binary: binary}, nil
}

// Load makes the compiler ready. Otherwise the first Compile does it, which takes about 0.1 s more.
func (c *Compiler) Load(ctx context.Context) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	return c.start(ctx)
}

// Check returns the error of Compile if it needs no compiler to find it. done means that Compile would return the nil
// program.
func Check(expression string, link LinkType, snapLen int) (done bool, err error) {
	if err := checkHandle(link, snapLen); err != nil {
		return false, err
	}
	return strings.Trim(expression, " \r\n\t") == "", checkText(expression)
}

// Compile translates an expression for packets of the given link type into a program that keeps snapLen bytes of each
// packet that it accepts. snapLen 0 means MaxSnapLen. The program is the one that tcpdump would attach to a live interface
// of that type, with two differences: names are refused, and the interface's netmask is unknown.
//
// An empty or blank expression gives a nil program. A *SyntaxError means that the expression is wrong. An error that wraps
// ctx.Err() means that ctx ended before the compilation began. A compilation is not interrupted; Most takes about a
// second.
func (c *Compiler) Compile(ctx context.Context, expression string, link LinkType, snapLen int) (bpfprog.Program, error) {
	if done, err := Check(expression, link, snapLen); done || err != nil {
		return nil, err
	}
	if snapLen == 0 {
		snapLen = MaxSnapLen
	}
	if err := c.acquire(ctx); err != nil {
		return nil, err
	}
	defer c.release()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	program, err := c.sandbox.compile(ctx, expression, link, snapLen)
	if err != nil {
		return nil, err
	}
	if err := program.Validate(); err != nil {
		return nil, kernelRefusal(expression, err)
	}
	return program, nil
}

// kernelRefusal returns the error for a program that the kernel would refuse; tcpdump would filter in user space. Two kinds
// of expressions lead to it. protochain loops over headers. For some expressions with geneve, or with pppoes after vlan,
// libpcap computes the offset of the inner headers on only one of the paths that use it.
func kernelRefusal(expression string, reason error) *SyntaxError {
	switch {
	case strings.Contains(expression, "protochain"):
		return newSyntaxError(expression, "protochain cannot run in the kernel: use ip6 proto, ip proto or proto")
	case errors.Is(reason, bpfprog.ErrScratchMemory):
		return newSyntaxError(expression, "the kernel would refuse the program of this filter, because it reads what follows geneve or pppoes "+
			"behind their headers even in packets without them: write it before them (tcp or geneve, not geneve or tcp), "+
			"join it to them by and (geneve and tcp), or match the outer header alone (udp port 6081, ether proto 0x8864)")
	default:
		return newSyntaxError(expression, "the kernel would refuse the program of this filter: %v", reason)
	}
}

func checkHandle(link LinkType, snapLen int) error {
	switch {
	case link != LinkEthernet && link != LinkRaw:
		return fmt.Errorf("compile filter: link type %d is not supported, use %d (Ethernet) or %d (raw IP)",
			link, LinkEthernet, LinkRaw)
	case snapLen < 0 || snapLen > MaxSnapLen:
		return fmt.Errorf("compile filter: snap length %d is out of range, use 0 to %d", snapLen, MaxSnapLen)
	}
	return nil
}

// Close frees the sandbox. Compile fails afterwards.
func (c *Compiler) Close(ctx context.Context) error {
	c.lock <- struct{}{}
	defer c.release()
	c.closed = true
	if c.sandbox == nil {
		return nil
	}
	err := c.sandbox.close(ctx)
	c.sandbox = nil
	return err
}

// acquire waits for the lock.
func (c *Compiler) acquire(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case c.lock <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("wait for the filter compiler: %w", ctx.Err())
}

func (c *Compiler) release() {
	<-c.lock
}

// start creates the sandbox on first use. The caller has the lock.
func (c *Compiler) start(ctx context.Context) error {
	if c.closed {
		return errors.New("compile filter: the compiler is closed")
	}
	if c.sandbox != nil {
		return nil
	}
	s, err := newSandbox(ctx, c.binary, c.limits)
	if err != nil {
		return err
	}
	c.sandbox = s
	return nil
}

// checkText refuses texts that cannot be filters.
func checkText(expression string) error {
	switch {
	case len(expression) > MaxExpressionBytes:
		return newSyntaxError(expression, "filter is too long: %d bytes, at most %d are allowed",
			len(expression), MaxExpressionBytes)
	case !utf8.ValidString(expression):
		return newSyntaxError(expression, "filter is not valid UTF-8: use ASCII text as in pcap-filter(7)")
	}
	for i, c := range expression {
		switch {
		case c == 0:
			return syntaxErrorAt(expression, i, "filter contains a NUL byte: remove it")
		case c > unicode.MaxASCII:
			return syntaxErrorAt(expression, i, "%s is not ASCII, and means nothing in a filter: %s", strconv.QuoteToASCII(string(c)), retype(c))
		}
	}
	return nil
}
