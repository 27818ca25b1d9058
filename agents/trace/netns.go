package trace

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// netns is the Pod's network namespace, by whose number the programs know its sockets. The kernel gives the number of a namespace
// that has ended to the next one, which may be another Pod's: the file keeps the namespace, and so its number, until the programs are
// detached. The zero value is none.
type netns struct {
	number uint32
	file   *os.File
}

// holdNetNS makes an own handle of a namespace; nil is none.
func holdNetNS(of *os.File) (netns, error) {
	if of == nil {
		return netns{}, nil
	}
	fd, err := unix.FcntlInt(of.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return netns{}, fmt.Errorf("duplicate network namespace: %w", err)
	}
	n := netns{file: os.NewFile(uintptr(fd), of.Name())}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = n.close() // opened for reading
		return netns{}, fmt.Errorf("stat network namespace: %w", err)
	}
	n.number = uint32(st.Ino)
	return n, nil
}

// close lets the namespace end. It may be called again.
func (n *netns) close() error {
	if n.file == nil {
		return nil
	}
	err := n.file.Close()
	n.file = nil
	return err
}
