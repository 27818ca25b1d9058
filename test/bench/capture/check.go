package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// content of a capture file.
type content struct {
	numbered int // frames of the flood with a number below its count, each once
	pushed   int // frames of the flood that were sent to push others out of the ring
	others   int
	size     int64
}

// errDamaged says that a file ends within a packet or has invalid lengths.
var errDamaged = errors.New("the file is damaged")

// check reads a pcap or pcapng file in the byte order of this machine. A duplicate frame of the flood is an error. It
// maps the file into memory, because reading takes a large part of the benchmark's time.
func check(path string, count int) (content, error) {
	f, err := os.Open(path)
	if err != nil {
		return content{}, fmt.Errorf("check the capture: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return content{}, fmt.Errorf("check the capture: %w", err)
	}
	if info.Size() == 0 {
		return content{}, fmt.Errorf("check %s: it is empty", path)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return content{}, fmt.Errorf("check the capture: %w", err)
	}
	defer func() { _ = unix.Munmap(b) }()
	c, err := parse(b, count)
	if err != nil {
		return c, fmt.Errorf("check %s: %w", path, err)
	}
	return c, nil
}

func parse(b []byte, count int) (content, error) {
	c := counter{content: content{size: int64(len(b))}, count: count, seen: make([]bool, count)}
	const (
		pcapMagic, pcapNano = 0xa1b2c3d4, 0xa1b23c4d
		pcapngMagic         = 0x0a0d0d0a
		pcapHeader          = 24
	)
	if len(b) < pcapHeader {
		return c.content, errDamaged
	}
	switch binary.LittleEndian.Uint32(b) {
	case pcapMagic, pcapNano:
		err := c.pcap(b[pcapHeader:])
		return c.content, err
	case pcapngMagic:
		err := c.pcapng(b)
		return c.content, err
	}
	return c.content, fmt.Errorf("%w: it begins with %x", errDamaged, b[:4])
}

type counter struct {
	content
	count int
	seen  []bool
}

func (c *counter) pcap(b []byte) error {
	const header = 16
	for len(b) > 0 {
		if len(b) < header || len(b)-header < int(binary.LittleEndian.Uint32(b[8:])) {
			return fmt.Errorf("%w: its last packet is not whole", errDamaged)
		}
		end := header + int(binary.LittleEndian.Uint32(b[8:]))
		if err := c.packet(b[header:end]); err != nil {
			return err
		}
		b = b[end:]
	}
	return nil
}

func (c *counter) pcapng(b []byte) error {
	const (
		enhanced = 6
		least    = 12
		data     = 28 // of an enhanced packet block
	)
	for len(b) > 0 {
		if len(b) < least {
			return fmt.Errorf("%w: its last block is not whole", errDamaged)
		}
		n := int(binary.LittleEndian.Uint32(b[4:]))
		if n < least || n%4 != 0 || n > len(b) || int(binary.LittleEndian.Uint32(b[n-4:])) != n {
			return fmt.Errorf("%w: a block of %d bytes, %d bytes before its end", errDamaged, n, len(b))
		}
		if binary.LittleEndian.Uint32(b) == enhanced {
			length := binary.LittleEndian.Uint32(b[20:])
			if n < data+4 || uint64(length) > uint64(n-data-4) {
				return fmt.Errorf("%w: a packet of %d bytes in a block of %d", errDamaged, length, n)
			}
			if err := c.packet(b[data : data+length]); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

func (c *counter) packet(b []byte) error {
	switch n, ok := number(b); {
	case !ok:
		c.others++
	case int(n) >= c.count:
		c.pushed++
	case c.seen[n]:
		return fmt.Errorf("frame %d is there twice", n)
	default:
		c.seen[n] = true
		c.numbered++
	}
	return nil
}
