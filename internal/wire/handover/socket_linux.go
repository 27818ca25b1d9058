package handover

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// network is SOCK_SEQPACKET in package net.
	network = "unixpacket"
	// maxFiles is the most sockets of a message: the two listeners.
	maxFiles = 2
)

// socket sends and receives messages. Several goroutines may send; one may receive.
type socket struct {
	conn *net.UnixConn
	mu   sync.Mutex // of sending
	in   [messageLen + 1]byte
	oob  []byte
}

func newSocket(c *net.UnixConn) *socket {
	return &socket{conn: c, oob: make([]byte, unix.CmsgSpace(4*maxFiles))}
}

// send sends a message with sockets, which stay open here.
func (s *socket) send(m *message, files ...*os.File) error {
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, 0, len(files))
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		oob = unix.UnixRights(fds...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, _, err := s.conn.WriteMsgUnix(m.appendTo(make([]byte, 0, messageLen)), oob, nil); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

// receive returns the next message and its sockets. The error is io.EOF when the peer has closed the connection.
func (s *socket) receive() (message, []*os.File, error) {
	n, oobn, flags, _, err := s.conn.ReadMsgUnix(s.in[:], s.oob)
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			return message{}, nil, io.EOF
		}
		return message{}, nil, fmt.Errorf("receive message: %w", err)
	}
	files, err := filesOf(s.oob[:oobn])
	if err != nil {
		return message{}, nil, err
	}
	m, err := parse(s.in[:n])
	// MSG_CTRUNC means that this process has too many open files. The message then has too few sockets, which its reader notices.
	if err == nil && flags&unix.MSG_TRUNC != 0 {
		err = fmt.Errorf("%w: it is too long", errMessage)
	}
	if err != nil {
		closeAll(files)
		return message{}, nil, err
	}
	return m, files, nil
}

// filesOf takes the sockets out of a control message.
func filesOf(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse control message: %w", err)
	}
	var files []*os.File
	for i := range controls {
		fds, err := unix.ParseUnixRights(&controls[i])
		if err != nil {
			continue // another kind of control message
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
