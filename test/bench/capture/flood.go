package capture

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// Layout of a frame of the flood: Ethernet, IPv4, UDP to FloodPort, and the number of the frame. The Ethernet address
// does not exist, so the network stack drops the frame early.
const (
	ethernetLen  = 14
	ipLen        = 20
	numberOffset = ethernetLen + ipLen + 8
	numberedLen  = numberOffset + 4
)

// floodMAC is the destination of the frames, and sourceMAC their source: locally administered addresses.
var (
	floodMAC  = [6]byte{2, 0, 0, 0, 0, 0x77}
	sourceMAC = [6]byte{2, 0, 0, 0, 0, 1}
)

// firstPort is the source port of the first of several flows.
const firstPort = 20_000

// floodBatch is the number of frames of one sendmmsg(2).
const floodBatch = 32

// With Beside, after targetTurns turns of turnFrames frames to the target, one turn goes to the namespace that is not
// captured. A turn takes about 15 ms, so a longer disturbance of the machine slows both.
const (
	turnFrames  = 10_000
	targetTurns = 4
)

// settle is the pause between turns, in which the kernel finishes the work of the last turn.
const settle = time.Millisecond

// Flood describes numbered frames to send.
type Flood struct {
	Size   int // bytes of a frame, without its checksum
	first  int // number of the first frame
	Count  int
	rate   float64 // frames per second; 0 is as fast as possible
	Beside bool    // send also to the namespace that is not captured
	// softirq is the PID of the softirq thread of the sender's CPU; 0 is none.
	softirq int
	// flows is how many flows the frames belong to, in turn, by their source ports. If it is not 0, they go to the sockets at
	// these addresses.
	flows                int
	targetMAC, besideMAC string
}

// flooded is the report of the sender.
type flooded struct {
	Target figures.Sent `json:"target"` // frames sent to the target
	Beside figures.Sent `json:"beside"`
}

func (f Flood) args() []string {
	return []string{
		"-size", strconv.Itoa(f.Size), "-first", strconv.Itoa(f.first), "-count", strconv.Itoa(f.Count),
		"-rate", strconv.FormatFloat(f.rate, 'f', -1, 64), "-beside=" + strconv.FormatBool(f.Beside), "-softirq", strconv.Itoa(f.softirq),
		"-flows", strconv.Itoa(f.flows), "-target-mac", f.targetMAC, "-beside-mac", f.besideMAC,
	}
}

func runFlood(args []string) error {
	flags := flag.NewFlagSet("flood", flag.ContinueOnError)
	var f Flood
	flags.IntVar(&f.Size, "size", 0, "")
	flags.IntVar(&f.first, "first", 0, "")
	flags.IntVar(&f.Count, "count", 0, "")
	flags.Float64Var(&f.rate, "rate", 0, "")
	flags.BoolVar(&f.Beside, "beside", false, "")
	flags.IntVar(&f.softirq, "softirq", 0, "")
	flags.IntVar(&f.flows, "flows", 0, "")
	flags.StringVar(&f.targetMAC, "target-mac", "", "")
	flags.StringVar(&f.besideMAC, "beside-mac", "", "")
	if err := errors.Join(flags.Parse(args), host.Enter(host.NetnsFD)); err != nil {
		return err
	}
	done, err := f.send()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(done)
}

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

func (f Flood) send() (out flooded, err error) {
	target, err := f.open(host.SenderLink, f.targetMAC, host.TargetIP)
	if err != nil {
		return out, err
	}
	defer target.close()
	if !f.Beside {
		return out, f.turn(target, f.first, f.Count, &out.Target)
	}
	beside, err := f.open(host.BesideLink, f.besideMAC, host.BesideIP)
	if err != nil {
		return out, err
	}
	defer beside.close()
	for turn, done := 1, 0; done < f.Count; turn++ {
		n := min(turnFrames, f.Count-done)
		if err := f.turn(target, f.first+done, n, &out.Target); err != nil {
			return out, err
		}
		if done += n; turn%targetTurns != 0 && done < f.Count {
			continue
		}
		if err := f.turn(beside, 0, n, &out.Beside); err != nil {
			return out, err
		}
	}
	return out, nil
}

// sender sends frames over a link.
type sender struct {
	fd       int
	frames   [][]byte
	messages []mmsghdr
}

func (f Flood) open(name, mac, ip string) (*sender, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	s := &sender{fd: fd}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return nil, errors.Join(fmt.Errorf("bypass queueing: %w", err), s.close())
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind packet socket: %w", err), s.close())
	}
	s.frames, s.messages = make([][]byte, floodBatch), make([]mmsghdr, floodBatch)
	vectors := make([]unix.Iovec, floodBatch)
	for i := range s.frames {
		s.frames[i] = newFrame(f.Size)
		if f.flows > 0 {
			if err := address(s.frames[i], mac, ip); err != nil {
				return nil, errors.Join(err, s.close())
			}
		}
		vectors[i].Base = &s.frames[i][0]
		vectors[i].SetLen(f.Size)
		s.messages[i].hdr.Iov = &vectors[i]
		s.messages[i].hdr.SetIovlen(1)
	}
	return s, nil
}

func (s *sender) close() error { return unix.Close(s.fd) }

// turn sends count frames, numbered from first, and adds their time to total.
func (f Flood) turn(s *sender, first, count int, total *figures.Sent) error {
	soft := f.softirqTime()
	waited, err := ownDelay()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := f.frames(s, first, count); err != nil {
		return err
	}
	wall := time.Since(start)
	delay, err := ownDelay()
	if err != nil {
		return err
	}
	if f.Beside {
		time.Sleep(settle)
	}
	total.Frames += count
	total.Wall += wall
	total.CPU += wall - (delay - waited) + f.softirqTime() - soft
	return nil
}

// softirqTime returns the CPU time of the softirq thread.
func (f Flood) softirqTime() time.Duration {
	if f.softirq == 0 {
		return 0
	}
	return host.ProcessTime(f.softirq)
}

func (f Flood) frames(s *sender, first, count int) error {
	start := time.Now()
	for sent := 0; sent < count; {
		n := min(floodBatch, count-sent)
		if f.rate > 0 {
			for due := time.Duration(float64(sent) / f.rate * 1e9); time.Since(start) < due; {
				continue // sleeping is not exact enough
			}
		}
		for i := range n {
			n := first + sent + i
			binary.LittleEndian.PutUint32(s.frames[i][numberOffset:], uint32(n))
			if f.flows > 0 {
				binary.BigEndian.PutUint16(s.frames[i][ethernetLen+ipLen:], uint16(firstPort+n%f.flows))
			}
		}
		if err := sendAll(s.fd, s.messages[:n]); err != nil {
			return err
		}
		sent += n
	}
	return nil
}

func sendAll(fd int, m []mmsghdr) error {
	for len(m) > 0 {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), 0, 0, 0)
		switch errno {
		case 0:
			m = m[n:]
		case unix.EINTR, unix.ENOBUFS:
		default:
			return fmt.Errorf("send: %w", errno)
		}
	}
	return nil
}

// newFrame returns a frame of size bytes.
func newFrame(size int) []byte {
	b := make([]byte, max(size, numberedLen))
	for i := range b {
		b[i] = 0xab
	}
	copy(b, floodMAC[:])
	copy(b[6:], sourceMAC[:])
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IP)
	ip := b[ethernetLen:]
	clear(ip[:ipLen])
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{10, 77, 0, 2, 10, 77, 9, 9})
	binary.BigEndian.PutUint16(ip[10:], checksum(ip[:ipLen]))
	udp := ip[ipLen:]
	binary.BigEndian.PutUint16(udp, 4096)
	binary.BigEndian.PutUint16(udp[2:], figures.FloodPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], 0)
	return b
}

// address makes a frame one to a socket of another namespace.
func address(frame []byte, mac, ip string) error {
	to, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	copy(frame, to)
	header := frame[ethernetLen:][:ipLen]
	copy(header[16:], net.ParseIP(ip).To4())
	copy(header[12:], header[16:])
	header[15]++ // the sender's end has the next address
	clear(header[10:12])
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	return nil
}

// checksum is the Internet checksum (RFC 1071) of a header of even length.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

// number returns the number of a frame of the flood; false for any other packet.
func number(b []byte) (uint32, bool) {
	if len(b) < numberedLen || [6]byte(b[6:]) != sourceMAC || binary.BigEndian.Uint16(b[numberOffset-6:]) != figures.FloodPort {
		return 0, false
	}
	return binary.LittleEndian.Uint32(b[numberOffset:]), true
}

// ownDelay returns how long this thread has waited for a CPU (sched-stats.rst in the Linux source).
func ownDelay() (time.Duration, error) {
	b, err := os.ReadFile("/proc/thread-self/schedstat")
	if err != nil {
		return 0, fmt.Errorf("read own scheduling times: %w", err)
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, fmt.Errorf("read own scheduling times: %q: the kernel keeps none", b)
	}
	ns, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read own scheduling times: %w", err)
	}
	return time.Duration(ns), nil
}
