package capture

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// batchOfTC is changes at queueing disciplines that the kernel makes within one system call, which SIGKILL does not divide.
type batchOfTC struct {
	messages []byte
	numbers  []uint32
}

func (b *batchOfTC) add(kind, flags int, at *nl.TcMsg, attrs ...*nl.RtAttr) {
	r := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	r.AddData(at)
	for _, a := range attrs {
		r.AddData(a)
	}
	m := r.Serialize()
	b.messages = append(b.messages, m...)
	b.messages = append(b.messages, make([]byte, -len(m)&(unix.NLMSG_ALIGNTO-1))...)
	b.numbers = append(b.numbers, r.Seq)
}

// send has the kernel make the changes in the network namespace of the caller's thread, each whether or not those before it
// worked, and returns what failed.
func (b *batchOfTC) send() []error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return []error{fmt.Errorf("open netlink socket: %w", err)}
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, b.messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return []error{fmt.Errorf("send to the kernel: %w", err)}
	}
	answers, err := answersOf(fd)
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, number := range b.numbers {
		answer, ok := answers[number]
		switch {
		case !ok:
			errs = append(errs, errors.New("the kernel has not answered"))
		case answer != 0:
			errs = append(errs, answer)
		}
	}
	return errs
}

// answersOf reads all answers, which are there when the changes are made, by the number of what they answer.
func answersOf(fd int) (map[uint32]unix.Errno, error) {
	answers := map[uint32]unix.Errno{}
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return answers, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the kernel's answer: %w", err)
		}
		for m := buf[:n]; len(m) >= unix.SizeofNlMsghdr+4; {
			size := int(binary.NativeEndian.Uint32(m))
			if size < unix.SizeofNlMsghdr+4 {
				break
			}
			if binary.NativeEndian.Uint16(m[4:]) == unix.NLMSG_ERROR {
				answers[binary.NativeEndian.Uint32(m[8:])] = unix.Errno(-int32(binary.NativeEndian.Uint32(m[unix.SizeofNlMsghdr:])))
			}
			m = m[min(len(m), (size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
		}
	}
}
