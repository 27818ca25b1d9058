package main

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
)

// A frame of the flood: Ethernet to an address that nobody has, so that the stack drops it early, IPv4, UDP to
// floodPort, and its number.
const (
	ethernetLen  = 14
	ipLen        = 20
	numberOffset = ethernetLen + ipLen + 8
	numberedLen  = numberOffset + 4
	floodPort    = 9
	otherPort    = 10 // what the filter that matches nothing asks for
)

// floodMAC is the frames' destination, locally administered.
var floodMAC = [6]byte{2, 0, 0, 0, 0, 0x77}

// floodBatch is how many frames one sendmmsg(2) takes.
const floodBatch = 32

// A flood that sends beside goes by turns to the target and to where nobody captures: after so many turns to the target one beside, of
// as many frames. A turn takes some 15 ms, so that what slows the machine for longer slows both.
const (
	turnFrames  = 10_000
	targetTurns = 4
)

// settle is how long a flood waits between turns: what the last has left to the kernel is done then.
const settle = time.Millisecond

// flood is what a sender of numbered frames is told.
type flood struct {
	size   int // bytes of a frame, without its checksum
	first  int // number of the first
	count  int
	rate   float64 // per second; 0 is as fast as it goes
	beside bool    // send beside, too
	// softirq is the thread that does interrupts' work on the sender's CPU; 0 is none.
	softirq int
}

// flooded is what it reports.
type flooded struct {
	Target sent `json:"target"` // what went to the target
	Beside sent `json:"beside"`
}

// sent is what frames took to send.
type sent struct {
	Frames int           `json:"frames"`
	Wall   time.Duration `json:"wall"`
	// CPU is the time of the sender's side. The sender never sleeps while it sends: what it did not wait for other tasks it had the CPU,
	// with all interrupts; what those left to their thread comes on top.
	CPU time.Duration `json:"cpu"`
}

func (f flood) args() []string {
	return []string{
		"-size", strconv.Itoa(f.size), "-first", strconv.Itoa(f.first), "-count", strconv.Itoa(f.count),
		"-rate", strconv.FormatFloat(f.rate, 'f', -1, 64), "-beside=" + strconv.FormatBool(f.beside), "-softirq", strconv.Itoa(f.softirq),
	}
}

func runFlood(args []string) error {
	flags := flag.NewFlagSet("flood", flag.ContinueOnError)
	var f flood
	flags.IntVar(&f.size, "size", 0, "")
	flags.IntVar(&f.first, "first", 0, "")
	flags.IntVar(&f.count, "count", 0, "")
	flags.Float64Var(&f.rate, "rate", 0, "")
	flags.BoolVar(&f.beside, "beside", false, "")
	flags.IntVar(&f.softirq, "softirq", 0, "")
	if err := errors.Join(flags.Parse(args), enter(netnsFD)); err != nil {
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

func (f flood) send() (out flooded, err error) {
	target, err := f.open(senderLink)
	if err != nil {
		return out, err
	}
	defer target.close()
	if !f.beside {
		return out, f.turn(target, f.first, f.count, &out.Target)
	}
	beside, err := f.open(besideLink)
	if err != nil {
		return out, err
	}
	defer beside.close()
	for turn, done := 1, 0; done < f.count; turn++ {
		n := min(turnFrames, f.count-done)
		if err := f.turn(target, f.first+done, n, &out.Target); err != nil {
			return out, err
		}
		if done += n; turn%targetTurns != 0 && done < f.count {
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

func (f flood) open(name string) (*sender, error) {
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
		s.frames[i] = newFrame(f.size)
		vectors[i].Base = &s.frames[i][0]
		vectors[i].SetLen(f.size)
		s.messages[i].hdr.Iov = &vectors[i]
		s.messages[i].hdr.SetIovlen(1)
	}
	return s, nil
}

func (s *sender) close() error { return unix.Close(s.fd) }

// turn sends frames from the number first on, and adds what they took to an account.
func (f flood) turn(s *sender, first, count int, to *sent) error {
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
	if f.beside {
		time.Sleep(settle)
	}
	to.Frames += count
	to.Wall += wall
	to.CPU += wall - (delay - waited) + f.softirqTime() - soft
	return nil
}

// softirqTime is what the interrupts' thread has had.
func (f flood) softirqTime() time.Duration {
	if f.softirq == 0 {
		return 0
	}
	return processTime(f.softirq)
}

func (f flood) frames(s *sender, first, count int) error {
	start := time.Now()
	for sent := 0; sent < count; {
		n := min(floodBatch, count-sent)
		if f.rate > 0 {
			for due := time.Duration(float64(sent) / f.rate * 1e9); time.Since(start) < due; {
				continue // no sleep is exact enough
			}
		}
		for i := range n {
			binary.LittleEndian.PutUint32(s.frames[i][numberOffset:], uint32(first+sent+i))
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

// newFrame makes a frame of size bytes.
func newFrame(size int) []byte {
	b := make([]byte, max(size, numberedLen))
	for i := range b {
		b[i] = 0xab
	}
	copy(b, floodMAC[:])
	copy(b[6:], []byte{2, 0, 0, 0, 0, 1})
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IP)
	ip := b[ethernetLen:]
	clear(ip[:ipLen])
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], []byte{10, 77, 0, 2, 10, 77, 9, 9})
	binary.BigEndian.PutUint16(ip[10:], checksum(ip[:ipLen]))
	udp := ip[ipLen:]
	binary.BigEndian.PutUint16(udp, 4096)
	binary.BigEndian.PutUint16(udp[2:], floodPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], 0)
	return b
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
	if len(b) < numberedLen || [6]byte(b) != floodMAC || binary.BigEndian.Uint16(b[numberOffset-6:]) != floodPort {
		return 0, false
	}
	return binary.LittleEndian.Uint32(b[numberOffset:]), true
}

// ownDelay is how long this thread has waited on a run queue (sched-stats.rst of the Linux source).
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
