package trace

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Ports of the workloads, in their own namespace.
const (
	port4         = 8080
	port6         = 8081
	inheritedPort = 8082
	refusedPort   = 9
	datagramPort  = 5353
)

// crowd is how many sockets the tracer keeps.
const crowd = 16384

var (
	loopback  = [4]byte{127, 0, 0, 1}
	loopback6 = [16]byte{15: 1}
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func value[T any](v T, err error) T {
	must(err)
	return v
}

// networkWorkload sends data to itself over sockets of all kinds. It waits for a byte before it starts, and before it
// exits, with a connection open.
func networkWorkload(dir string) {
	runtime.LockOSThread()
	loopbackUp()
	wait("ready")
	listener := listening(unix.AF_INET, &unix.SockaddrInet4{Port: port4, Addr: loopback})
	exchange(listener)
	exchange6()
	refused()
	datagrams()
	unixSockets(dir)
	exchangeWithReset(listener)
	for range lossyConnections {
		exchangeWithLoss(listener)
	}
	inheritListener()
	leaveOpen(listener)
	wait("done")
	os.Exit(0)
}

// wait prints a word and waits for a byte.
func wait(word string) {
	fmt.Println(word)
	_, _ = unix.Read(0, make([]byte, 1))
}

func loopbackUp() {
	fd := value(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0))
	ifr := value(unix.NewIfreq("lo"))
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	must(unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
	must(unix.Close(fd))
}

func listening(family int, at unix.Sockaddr) int {
	fd := value(unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	must(unix.Bind(fd, at))
	must(unix.Listen(fd, 8))
	return fd
}

// connected returns both ends of a new connection.
func connected(listener, family int, to unix.Sockaddr) (client, server int) {
	client = value(unix.Socket(family, unix.SOCK_STREAM, 0))
	must(unix.Connect(client, to))
	server, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	must(err)
	return client, server
}

// fill takes the memory that the kernel allows for a socket's options, by the largest filter that fits.
func fill(fd int) {
	attach := func(n int) error {
		filter := slices.Repeat([]unix.SockFilter{{Code: unix.BPF_LDX | unix.BPF_MSH | unix.BPF_B}}, n+1)
		accept := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxInt32}
		filter[0], filter[n] = accept, accept
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(n + 1), Filter: &filter[0]})
	}
	const most = 4000
	refused := 1 + sort.Search(most, func(n int) bool {
		if attach(n+1) != nil {
			return true
		}
		must(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0))
		return false
	})
	if refused > most {
		panic("the filter has no limit")
	}
	must(attach(refused - 1))
}

// fullWorkload connects to itself by sockets without room for more options. One connection is older than the trace.
func fullWorkload() {
	runtime.LockOSThread()
	loopbackUp()
	listener := listening(unix.AF_INET, &unix.SockaddrInet4{Addr: loopback})
	at := value(unix.Getsockname(listener))
	older, accepted := connected(listener, unix.AF_INET, at)
	fill(older)
	fill(accepted)
	wait("ready")
	for _, fd := range []int{older, accepted, listener} {
		must(unix.Close(fd))
	}
	listener = value(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
	fill(listener)
	must(unix.Bind(listener, &unix.SockaddrInet4{Addr: loopback}))
	must(unix.Listen(listener, 8))
	client := value(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
	fill(client)
	must(unix.Connect(client, value(unix.Getsockname(listener))))
	server, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	must(err)
	move(client, server, 5)
	for _, fd := range []int{client, server, listener} {
		must(unix.Close(fd))
	}
	wait("done")
	os.Exit(0)
}

// crowdedWorkload opens a connection and Unix sockets, or only connections: more than the tracer keeps.
func crowdedWorkload(connections bool) {
	runtime.LockOSThread()
	loopbackUp()
	listener := listening(unix.AF_INET, &unix.SockaddrInet4{Addr: loopback})
	at := value(unix.Getsockname(listener))
	for range crowd / 2 {
		if connections {
			connected(listener, unix.AF_INET, at)
		} else {
			_ = value(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
		}
	}
	connected(listener, unix.AF_INET, at)
	wait("ready")
	os.Exit(0)
}

// unsharedWorkload connects to itself in a network namespace of its own. One connection ends, and one stays open.
func unsharedWorkload() {
	runtime.LockOSThread()
	wait("ready")
	must(unix.Unshare(unix.CLONE_NEWNET))
	loopbackUp()
	listener := listening(unix.AF_INET, &unix.SockaddrInet4{Port: port4, Addr: loopback})
	exchange(listener)
	connected4(listener)
	wait("done")
	os.Exit(0)
}

func connected4(listener int) (client, server int) {
	return connected(listener, unix.AF_INET, &unix.SockaddrInet4{Port: port4, Addr: loopback})
}

// move writes n bytes at one end and reads them at the other.
func move(from, to, n int) {
	b := make([]byte, 1000)
	for n > 0 {
		written := value(unix.Write(from, b[:min(n, len(b))]))
		n -= written
		for written > 0 {
			got := value(unix.Read(to, b[:written]))
			if got == 0 {
				panic("the connection has ended")
			}
			written -= got
		}
	}
}

func exchange(listener int) {
	client, server := connected4(listener)
	move(client, server, 5)
	move(server, client, 7)
	must(unix.Close(client))
	closeAfterPeer(server)
}

// closeAfterPeer closes an end once it knows that its peer has closed. On a busy machine that takes a moment.
func closeAfterPeer(fd int) {
	const patience = 20_000 // in ms
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, patience)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case n == 0:
			panic("the peer has not closed")
		}
		must(err)
		must(unix.Close(fd))
		return
	}
}

// exchange6 uses IPv6, and its server closes first.
func exchange6() {
	at := &unix.SockaddrInet6{Port: port6, Addr: loopback6}
	listener := listening(unix.AF_INET6, at)
	client, server := connected(listener, unix.AF_INET6, at)
	move(client, server, 100_000)
	must(unix.Close(server))
	closeAfterPeer(client)
	must(unix.Close(listener))
}

func refused() {
	fd := value(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: refusedPort, Addr: loopback}); !errors.Is(err, unix.ECONNREFUSED) {
		panic(fmt.Sprint("not refused: ", err))
	}
	must(unix.Close(fd))
}

func datagrams() {
	at := &unix.SockaddrInet4{Port: datagramPort, Addr: loopback}
	server := value(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0))
	must(unix.Bind(server, at))
	client := value(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0))
	must(unix.Sendto(client, make([]byte, 9), 0, at))
	_, _, err := unix.Recvfrom(server, make([]byte, 20), 0)
	must(err)
	must(unix.Close(client))
	must(unix.Close(server))
}

func unixSockets(dir string) {
	for _, at := range []*unix.SockaddrUnix{{Name: filepath.Join(dir, "s")}, {Name: "@workload"}} {
		listener := listening(unix.AF_UNIX, at)
		client, server := connected(listener, unix.AF_UNIX, at)
		move(client, server, 11)
		for _, fd := range []int{client, server, listener} {
			must(unix.Close(fd))
		}
	}
	fds := value(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	move(fds[0], fds[1], 1)
	must(unix.Close(fds[0]))
	must(unix.Close(fds[1]))
}

// exchangeWithReset ends with a reset by the client.
func exchangeWithReset(listener int) {
	client, server := connected4(listener)
	move(client, server, 3)
	must(unix.SetsockoptLinger(client, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
	must(unix.Close(client))
	closeAfterPeer(server)
}

// lossyConnections is how many connections retransmit. Each takes the kernel's first timeout, 0.2 s.
const lossyConnections = 3

// exchangeWithLoss makes the server's kernel drop segments until they are sent again.
func exchangeWithLoss(listener int) {
	client, server := connected4(listener)
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	must(unix.SetsockoptSockFprog(server, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]}))
	_ = value(unix.Write(client, make([]byte, 10)))
	for end := time.Now().Add(20 * time.Second); value(unix.GetsockoptTCPInfo(client, unix.SOL_TCP, unix.TCP_INFO)).Total_retrans == 0; {
		if time.Now().After(end) {
			panic("nothing was sent again")
		}
		time.Sleep(10 * time.Millisecond)
	}
	must(unix.SetsockoptInt(server, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0))
	if n := value(unix.Read(server, make([]byte, 20))); n != 10 {
		panic(n)
	}
	must(unix.Close(client))
	closeAfterPeer(server)
}

// inheritListener makes another process accept from this process's listener.
func inheritListener() {
	at := &unix.SockaddrInet4{Port: inheritedPort, Addr: loopback}
	listener := listening(unix.AF_INET, at)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), workloadEnv+"=accept")
	child.ExtraFiles = []*os.File{os.NewFile(uintptr(listener), "listener")}
	must(child.Start())
	fd := value(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))
	must(unix.Connect(fd, at))
	_ = value(unix.Write(fd, []byte("x")))
	if n := value(unix.Read(fd, make([]byte, 1))); n != 0 {
		panic(n)
	}
	must(unix.Close(fd))
	must(child.Wait())
	fmt.Println("child " + strconv.Itoa(child.Process.Pid))
}

// acceptWorkload is that other process.
func acceptWorkload() {
	fd, _, err := unix.Accept(3)
	must(err)
	_ = value(unix.Read(fd, make([]byte, 1)))
	must(unix.Close(fd))
	os.Exit(0)
}

// leaveOpen makes a connection without waiting for it, and leaves it open.
func leaveOpen(listener int) {
	client := value(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0))
	if err := unix.Connect(client, &unix.SockaddrInet4{Port: port4, Addr: loopback}); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		panic(err)
	}
	server, _, err := unix.Accept(listener)
	must(err)
	must(unix.SetNonblock(client, false))
	move(client, server, 2)
}

// listenWorkload listens in its current namespace before the trace begins.
func listenWorkload() {
	runtime.LockOSThread()
	listener := listening(unix.AF_INET, &unix.SockaddrInet4{Addr: loopback})
	at, ok := value(unix.Getsockname(listener)).(*unix.SockaddrInet4)
	if !ok {
		panic("not IPv4")
	}
	wait("ready " + strconv.Itoa(at.Port))
	server, _, err := unix.Accept(listener) // which may have waited since before the trace
	must(err)
	_ = value(unix.Read(server, make([]byte, 4)))
	_ = value(unix.Write(server, make([]byte, 2)))
	must(unix.Close(server))
	wait("done")
	os.Exit(0)
}
