package pcapfilter

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// Compiler compiles filters. It is safe for concurrent use, and compiles one at a time to bound its memory.
type Compiler struct {
	// lock guards the fields below. Unlike a mutex, a channel lets a caller stop waiting when its context ends.
	lock    chan struct{}
	binary  []byte
	sandbox *sandbox
	closed  bool
}

// New returns a compiler. It is cheap, because the first Compile loads libpcap. It fails if the binary was built without
// libpcap, which `make pcapfilter` builds.
func New(_ context.Context) (*Compiler, error) {
	binary, err := readModule(artifacts)
	if err != nil {
		return nil, err
	}
	return &Compiler{lock: make(chan struct{}, 1), binary: binary}, nil
}

// Compile translates an expression for packets of the given link type into a program that keeps snapLen bytes of each
// packet that it accepts. snapLen 0 means MaxSnapLen. The program is the one that tcpdump would attach to a live interface
// of that type, with two differences: names are refused, and the interface's netmask is unknown.
//
// An empty or blank expression gives a nil program. A *SyntaxError means that the expression is wrong. An error that wraps
// ctx.Err() means that ctx ended before the compilation began. A compilation takes at most about a second and is not
// interrupted.
func (c *Compiler) Compile(ctx context.Context, expression string, link LinkType, snapLen int) (bpfprog.Program, error) {
	snapLen, err := checkHandle(link, snapLen)
	if err != nil {
		return nil, err
	}
	if err := checkText(expression); err != nil {
		return nil, err
	}
	if strings.Trim(expression, " \r\n\t") == "" {
		return nil, nil
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

// checkHandle returns the snap length to compile with.
func checkHandle(link LinkType, snapLen int) (int, error) {
	switch {
	case link != LinkEthernet && link != LinkRaw:
		return 0, fmt.Errorf("compile filter: link type %d is not supported, use %d (Ethernet) or %d (raw IP)",
			link, LinkEthernet, LinkRaw)
	case snapLen < 0 || snapLen > MaxSnapLen:
		return 0, fmt.Errorf("compile filter: snap length %d is out of range, use 0 to %d", snapLen, MaxSnapLen)
	case snapLen == 0:
		return MaxSnapLen, nil
	default:
		return snapLen, nil
	}
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
	s, err := newSandbox(ctx, c.binary)
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
	case strings.ContainsRune(expression, 0):
		return newSyntaxError(expression, "filter contains a NUL byte: remove it")
	case !utf8.ValidString(expression):
		return newSyntaxError(expression, "filter is not valid UTF-8: use ASCII text as in pcap-filter(7)")
	}
	return nil
}
