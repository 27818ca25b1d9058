package carrier

import (
	"cmp"
	"errors"
	"maps"
	"math/bits"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/memory"
)

const (
	// fewConnections keep the sizes of buffers that the kernel chooses (tcp_wmem, tcp_rmem): up to 4 MiB for sending and, on most kernels, 6
	// MiB for receiving.
	fewConnections = 16
	// allBuffers in bytes is divided by the number of connections for the buffers of a new one in one direction, which have minBuffer at
	// least. All together may have more: those that came first keep their size.
	allBuffers, minBuffer = 96 << 20, 64 << 10
	// measuredAtOnce bounds how many connections are measured in a memory.CheckInterval. More are measured less often: a system call for
	// each socket would take a part of a CPU, and many connections have small buffers.
	measuredAtOnce = 1024
	// largeHolder in bytes: sockets that hold less are not worth an end. DefaultConnections of them hold less than half of
	// handover.SocketMemory.
	largeHolder = 16 << 10
)

// bufferSize returns the bytes that a buffer of one of n connections may take in one direction, or 0 if the kernel chooses. It is about
// allBuffers / n. It halves when n doubles, so that few changes of n change it.
func bufferSize(n int) int {
	if n <= fewConnections {
		return 0
	}
	return max(minBuffer, allBuffers>>bits.Len(uint(n-1)))
}

// setBuffers bounds both buffers of a socket to a bufferSize. The kernel cuts it to twice net.core.wmem_max and rmem_max, on most kernels
// 416 KiB. Errors mean that the connection has ended.
func setBuffers(s *net.TCPConn, size int) {
	if size == 0 {
		return
	}
	_ = s.SetReadBuffer(size / 2) // the kernel doubles it
	_ = s.SetWriteBuffer(size / 2)
}

// resetOnClose makes close reset a connection. The kernel closes the sockets of a process that is killed, and a regular end would make what
// the other side has got look whole.
func resetOnClose(s *net.TCPConn) {
	_ = s.SetLinger(0) // an error means that the connection has ended
}

// endOnClose undoes resetOnClose before a regular end. The kernel then sends what the other side has not taken, also after close.
func endOnClose(s *net.TCPConn) {
	_ = s.SetLinger(-1)
}

// control calls do with a socket's descriptor. The error says that the socket is closed, or is do's.
func control(s syscall.Conn, do func(fd int) error) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	err = raw.Control(func(fd uintptr) { result = do(int(fd)) })
	return errors.Join(err, result)
}

// socketHolds is what the kernel holds for a socket, in bytes. all is what it counts for the container; unsent is a part of it.
type socketHolds struct{ all, unsent int }

// holdsOf asks the kernel (SO_MEMINFO; the fields are in include/uapi/linux/sock_diag.h). A closed socket holds nothing.
func holdsOf(s syscall.Conn) (h socketHolds) {
	_ = control(s, func(fd int) error {
		// The first eight numbers. Package unix has no function for this option, but one for another option of the same form.
		v, err := unix.GetsockoptICMPv6Filter(fd, unix.SOL_SOCKET, unix.SO_MEMINFO)
		if err != nil {
			return err
		}
		h.unsent = int(v.Data[unix.SK_MEMINFO_WMEM_QUEUED])
		h.all = int(v.Data[unix.SK_MEMINFO_RMEM_ALLOC]) + h.unsent + int(int32(v.Data[unix.SK_MEMINFO_FWD_ALLOC])) // may be negative for a moment
		return nil
	})
	return h
}

// Sides of a connection. The kernel counts the sockets of a side for the container that made them.
const (
	sideAccepted = iota // the carrier's container
	sideApp             // the opener's container
	sides
)

// holder is a connection, what its sockets hold on each side, and what it has moved since the last check, in bytes.
type holder struct {
	of    *conn
	holds [sides]int
	moved int64
}

func (c *conn) holder() holder {
	c.mu.Lock()
	app := c.app
	c.mu.Unlock()
	h := holder{of: c}
	h.holds[sideAccepted] = holdsOf(c.accepted()).all
	if app != nil {
		h.holds[sideApp] = holdsOf(app.tcp).all
	}
	return h
}

// accepted returns the accepted socket, also while the connection is closed and the peer has not taken all.
func (c *conn) accepted() syscall.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving != nil {
		return c.leaving
	}
	return c.down
}

// moved returns the bytes that the peer took and sent since the last call, or since the connection began. The kernel counts them, also
// those that it copies itself. Only relieve calls it.
func (c *conn) moved() int64 {
	before := c.counted
	if n, err := movedOf(c.accepted()); err == nil {
		c.counted = n
	}
	return c.counted - before
}

// movedOf returns the bytes that the peer of a socket took and sent since the connection began.
func movedOf(s syscall.Conn) (n int64, err error) {
	info, err := infoOf(s)
	if err != nil {
		return 0, err
	}
	return int64(info.Bytes_acked + info.Bytes_received), nil
}

// infoOf returns what the kernel knows of a TCP connection.
func infoOf(s syscall.Conn) (info *unix.TCPInfo, err error) {
	err = control(s, func(fd int) (err error) {
		info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err
	})
	return info, err
}

// hasReset reports whether the peer of a socket has reset the connection, or both directions have ended. It is for a peer of which not
// all was read, or counted: otherwise tunnel.CutAfter tells the two apart.
func hasReset(s syscall.Conn) bool {
	info, err := infoOf(s)
	return err == nil && info.State == unix.BPF_TCP_CLOSE
}

// measure returns what all sockets hold in bytes, and the connections with a socket that holds largeHolder.
func (c *Carrier) measure() (sums [sides]int, large []holder) {
	for _, one := range c.all() {
		h := one.holder()
		for side, n := range h.holds {
			sums[side] += n
		}
		if slices.Max(h.holds[:]) >= largeHolder {
			large = append(large, h)
		}
	}
	return sums, large
}

// crowding returns what the sockets of each side hold, in bytes. If that is more than half of room, also in bytes, short is true, and worst
// has the connections that are to end.
//
// From a quarter of room on, each check counts what the connections move. Below it counts nothing, so the first count may be all that
// a connection has moved since it began: little for one that was opened to hold memory.
func (c *Carrier) crowding(room int) (sums [sides]int, worst []*conn, short bool) {
	sums, large := c.measure()
	if slices.Max(sums[:]) <= room/4 {
		return sums, nil, false
	}
	for i := range large {
		large[i].moved = large[i].of.moved()
	}
	for side, sum := range sums {
		if excess := sum - room/2; excess > 0 {
			short = true
			worst = append(worst, worstOf(large, side, excess)...)
		}
	}
	return sums, worst, short
}

// worstOf returns connections whose end frees some bytes of a side. The peer whose sockets hold the most there comes first, with its slowest
// connections. If these are not enough, the next peer follows: callers may have hundreds of addresses.
func worstOf(large []holder, side, free int) []*conn {
	byPeer, total := map[string][]memory.Waiter[*conn]{}, map[string]int{}
	for _, h := range large {
		if h.holds[side] < largeHolder {
			continue
		}
		peer := h.of.peer()
		moved := h.moved
		if moved < largeHolder { // next to nothing, so the larger one of two ends first
			moved = -int64(h.holds[side])
		}
		byPeer[peer] = append(byPeer[peer], memory.Waiter[*conn]{Of: h.of, Holds: h.holds[side], Moved: moved})
		total[peer] += h.holds[side]
	}
	var worst []*conn
	for _, peer := range slices.SortedFunc(maps.Keys(total), func(a, b string) int { return cmp.Compare(total[b], total[a]) }) {
		worst = append(worst, memory.Worst(byPeer[peer], free)...)
		if free -= total[peer]; free <= 0 {
			break
		}
	}
	return worst
}

// peer returns the address of the peer without its port.
func (c *conn) peer() string {
	host, _, _ := net.SplitHostPort(c.down.RemoteAddr().String())
	return host
}

// keepUntaken prepares a regular end. It keeps the accepted socket by a second descriptor if the peer has not taken all. The kernel would
// keep the bytes of a closed socket, for this container, as long as the peer likes, and relieve would not know of them. If there are
// bytes that the carrier has not read, close throws all away and resets. The caller holds mu.
func (c *conn) keepUntaken() {
	untaken := holdsOf(c.down).unsent > 0
	if untaken && unread(c.down) > 0 {
		return // it still resets, also if another goroutine reads them before close
	}
	endOnClose(c.down)
	if !untaken {
		return
	}
	if f, err := c.down.File(); err == nil {
		c.leaving = f
	}
}

// unread returns how many bytes of the peer can be read. For bytes that came out of order, and for the peer's end, close does not reset,
// but the kernel holds memory.
func unread(s syscall.Conn) (n int) {
	_ = control(s, func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.SIOCINQ)
		return err
	})
	return n
}

// shutdown ends both directions of a kept socket. To the peer it looks like close.
func shutdown(f *os.File) {
	_ = control(f, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) }) // fails if the peer has gone
}

// stuckTime bounds how long a closed connection waits for a peer that takes nothing. Then it is reset. The kernel alone would reset it
// after some 200 to 330 s. Until then it would count the bytes for this container, and relieve would not know of them.
const stuckTime = 330 * time.Second

// taken waits until the peer of a closed connection has taken all or has gone, or the carrier ends. It resets a peer that takes nothing.
func (c *conn) taken() {
	c.mu.Lock()
	f := c.leaving
	c.mu.Unlock()
	if f == nil {
		return
	}
	defer f.Close()
	last, since := int64(-1), time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, memory.CheckInterval) {
		if holdsOf(f).unsent == 0 {
			return
		}
		moved, _ := movedOf(f) // what is unsent shrinks only by whole pages
		switch {
		case moved != last:
			last, since = moved, time.Now()
		case time.Since(since) > stuckTime:
			reset(f)
			return
		}
		select {
		case <-c.carrier.ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// end resets the connection and frees what its sockets hold, also if it is closed and the peer has not taken all.
func (c *conn) end() {
	c.close(true)
	c.mu.Lock()
	f := c.leaving
	c.mu.Unlock()
	if f != nil {
		reset(f)
	}
}

// reset closes a socket that takes part in no transfer any more.
func reset(f *os.File) {
	_ = control(f, func(fd int) error {
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	_ = f.Close()
}
