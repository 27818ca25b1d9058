package links

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// atATime is how many interfaces are asked for at a time. The kernel's answers wait in the socket's buffer of some 200 KiB.
const atATime = 16

// maxForeign bounds the messages of other senders that are skipped: a process of the target with CAP_NET_ADMIN may send any number.
const maxForeign = 1000

// skipStats is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h: an answer without statistics is a third as long.
const skipStats = 1 << 3

// errNoAnswer reports that the kernel's answer did not reach the socket.
var errNoAnswer = errors.New("the kernel has not described each interface")

// Get describes the interfaces with these indexes in the calling thread's network namespace; those that do not exist are left out.
func Get(indexes []int) ([]Link, error) { return get(indexes, skipStats) }

// GetWithPackets is Get for one interface, with the number of its packets.
func GetWithPackets(index int) ([]Link, error) { return get([]int{index}, 0) }

func get(indexes []int, mask uint32) ([]Link, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	defer unix.Close(fd)
	all, buf, foreign := make([]Link, 0, len(indexes)), make([]byte, 32<<10), 0
	for some := range slices.Chunk(indexes, atATime) {
		if err := unix.Sendto(fd, getLinks(some, mask), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, fmt.Errorf("ask for interfaces: %w", err)
		}
		for answers := 0; answers < len(some); { // all have arrived when Sendto returns
			n, err := Receive(fd, buf, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) || foreign > maxForeign {
				return nil, errNoAnswer
			}
			if err != nil {
				return nil, fmt.Errorf("read interfaces: %w", err)
			}
			if n == 0 {
				foreign++
				continue
			}
			answers++
			links, _, _, err := parseLinks(buf[:n])
			if err != nil && !errors.Is(err, unix.ENODEV) {
				return nil, err
			}
			all = append(all, links...)
		}
	}
	return all, nil
}

// getLinks builds a request for each interface.
func getLinks(indexes []int, mask uint32) []byte {
	const size = unix.SizeofNlMsghdr + unix.SizeofIfInfomsg + unix.SizeofRtAttr + 4
	b := make([]byte, 0, size*len(indexes))
	for i, index := range indexes {
		b = binary.NativeEndian.AppendUint32(b, size)
		b = binary.NativeEndian.AppendUint16(b, unix.RTM_GETLINK)
		b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
		b = binary.NativeEndian.AppendUint32(b, uint32(i+1)) // sequence
		b = binary.NativeEndian.AppendUint32(b, 0)           // port
		b = append(b, make([]byte, 4)...)                    // family, type
		b = binary.NativeEndian.AppendUint32(b, uint32(index))
		b = append(b, make([]byte, 8)...) // flags
		b = binary.NativeEndian.AppendUint16(b, unix.SizeofRtAttr+4)
		b = binary.NativeEndian.AppendUint16(b, unix.IFLA_EXT_MASK)
		b = binary.NativeEndian.AppendUint32(b, mask)
	}
	return b
}
