package tc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
)

// changes are changes to queueing disciplines and filters that the kernel makes within one system call, which SIGKILL
// does not interrupt.
type changes struct {
	messages []byte
	numbers  []uint32
}

func (c *changes) add(kind, flags int, at *nl.TcMsg, attrs ...*nl.RtAttr) {
	r := nl.NewNetlinkRequest(kind, flags|unix.NLM_F_ACK)
	r.AddData(at)
	for _, a := range attrs {
		r.AddData(a)
	}
	m := r.Serialize()
	c.messages = append(c.messages, m...)
	c.messages = append(c.messages, make([]byte, -len(m)&(unix.NLMSG_ALIGNTO-1))...)
	c.numbers = append(c.numbers, r.Seq)
}

// send makes the changes in the network namespace of the caller's thread, all of them even if one fails, and returns the
// errors.
func (c *changes) send() []error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return []error{fmt.Errorf("open netlink socket: %w", err)}
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, c.messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return []error{fmt.Errorf("send to the kernel: %w", err)}
	}
	answers, err := answersOf(fd, len(c.numbers))
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, number := range c.numbers {
		answer, ok := answers[number]
		switch {
		case !ok:
			errs = append(errs, errors.New("the kernel has not confirmed a change"))
		case answer != 0:
			errs = append(errs, answer)
		}
	}
	return errs
}

// answersOf reads the kernel's answers to the number of requests, by their sequence number. All have arrived when Sendto
// returns.
func answersOf(fd, requests int) (map[uint32]unix.Errno, error) {
	answers := map[uint32]unix.Errno{}
	buf := make([]byte, 1<<16)
	for len(answers) < requests {
		n, err := links.Receive(fd, buf, unix.MSG_DONTWAIT)
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
	return answers, nil
}
