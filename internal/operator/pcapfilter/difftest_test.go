package pcapfilter_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/test/frames"
)

// Numbers of frames that are not compared: those from firstRound on, and
// endOfFrames, which marks the end.
const (
	firstRound  = 1 << 20
	endOfFrames = 1 << 30
)

// Every frame ends in frameMark and its number, after the length that its
// headers give, so that it is recognized even if its headers are changed.
var frameMark = []byte("sonde#")

const frameTrailer = 6 + 4

// numberOf returns the number of a frame of ours.
func numberOf(frame []byte) (uint32, bool) {
	if len(frame) < frameTrailer {
		return 0, false
	}
	trailer := frame[len(frame)-frameTrailer:]
	return binary.BigEndian.Uint32(trailer[len(frameMark):]), bytes.HasPrefix(trailer, frameMark)
}

// numbered returns the frame with its trailer.
func numbered(frame []byte, number int) []byte {
	return binary.BigEndian.AppendUint32(append(bytes.Clone(frame), frameMark...), uint32(number))
}

// TestFiltersMatchTcpdump sends each frame in both directions over a veth
// device. For each expression, a packet socket with our program and a tcpdump
// listen there. Both must receive the same frames.
func TestFiltersMatchTcpdump(t *testing.T) {
	n := newTestNet(t)
	c := sharedCompiler(t)
	sockets := make(map[string]int)
	dumps := make(map[string]*tcpdump)
	for _, expression := range expressions {
		program, err := c.Compile(t.Context(), expression, pcapfilter.LinkEthernet, 0)
		if err != nil {
			t.Fatal(err)
		}
		sockets[expression] = openSocket(t, n.captured, program)
		dumps[expression] = n.startTcpdump(t, expression)
	}
	for _, dump := range dumps {
		dump.awaitListening(t)
	}
	names := n.sendAll(t)
	ours := make(map[string][]uint32)
	for expression, dump := range dumps {
		ours[expression] = drain(t, sockets[expression])
		dump.interrupt(t, len(ours[expression]))
	}
	for _, expression := range expressions {
		t.Run(expression, func(t *testing.T) {
			want, got := label(names, dumps[expression].result(t)), label(names, ours[expression])
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("accepted frames (-tcpdump +ours):\n%s", diff)
			}
			if len(got) == 0 || len(got) == len(names) {
				t.Errorf("accepts %d of %d frames: the frames do not test it", len(got), len(names))
			}
		})
	}
}

// sendAll sends each frame from the peer and from the captured device, twice,
// waits until all have arrived, and returns the names of the second round's by
// number. The first round is not compared: libpcap itself filters the first
// packet after its filter is set, without knowing the direction.
func (n *testNet) sendAll(t *testing.T) map[uint32]string {
	t.Helper()
	pinToOneCPU(t)
	witness := openSocket(t, n.captured, nil)
	inward, outward := openSocket(t, n.peer, nil), openSocket(t, n.captured, nil)
	names := make(map[uint32]string)
	all, err := frames.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, base := range []int{firstRound, 0} {
		for i, name := range slices.Sorted(maps.Keys(all)) {
			in, out := base+2*i, base+2*i+1
			send(t, inward, n.peer, numbered(all[name], in))
			send(t, outward, n.captured, numbered(all[name], out))
			names[uint32(in)], names[uint32(out)] = name+" in", name+" out"
		}
	}
	send(t, inward, n.peer, numbered(all["another type"], endOfFrames))
	maps.DeleteFunc(names, func(number uint32, _ string) bool { return number >= firstRound })
	arrived := awaitEnd(t, witness)
	if diff := cmp.Diff(slices.Sorted(maps.Values(names)), label(names, arrived)); diff != "" {
		t.Fatalf("frames that passed the device (-sent +arrived):\n%s", diff)
	}
	return names
}

func send(t *testing.T, fd int, link netlink.Link, frame []byte) {
	t.Helper()
	if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}); err != nil {
		t.Fatalf("send frame: %v", err)
	}
}

// awaitEnd reads until the frame after the last one. All sockets of the device
// get each frame before any gets the next.
func awaitEnd(t *testing.T, fd int) []uint32 {
	t.Helper()
	var arrived []uint32
	for !slices.Contains(arrived, endOfFrames) {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
		if ready == 0 && err == nil {
			t.Fatalf("the last frame did not arrive; arrived: %v", arrived)
		}
		arrived = append(arrived, drain(t, fd)...)
	}
	return arrived
}

// drain empties a socket and returns the numbers of our frames.
func drain(t *testing.T, fd int) []uint32 {
	t.Helper()
	var numbers []uint32
	buffer := make([]byte, 4096)
	for {
		size, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		if number, ok := numberOf(buffer[:size]); ok {
			numbers = append(numbers, number)
		}
	}
	statistics, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil || statistics.Drops != 0 {
		t.Fatalf("the socket lost frames: %+v, %v", statistics, err)
	}
	return numbers
}

// label returns the sorted names of the numbers that have one.
func label(names map[uint32]string, numbers []uint32) []string {
	labels := make([]string, 0, len(numbers))
	for _, number := range numbers {
		if name, ok := names[number]; ok {
			labels = append(labels, name)
		}
	}
	slices.Sort(labels)
	return labels
}

// tcpdump is a running tcpdump that writes to a file.
type tcpdump struct {
	command *exec.Cmd
	file    string
	// errors is only read here: tcpdump writes to the file itself.
	errors string
}

func (n *testNet) startTcpdump(t *testing.T, expression string) *tcpdump {
	t.Helper()
	dir := t.TempDir()
	d := &tcpdump{file: filepath.Join(dir, "out.pcap"), errors: filepath.Join(dir, "stderr")}
	stderr, err := os.Create(d.errors)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stderr.Close() }()
	d.command = exec.CommandContext(context.Background(), "tcpdump", "-i", n.captured.Attrs().Name, "-U", "--immediate-mode",
		"-B", "2048", "-s", "2048", "-Z", "root", "-w", d.file, expression)
	d.command.Stderr = stderr
	if err := d.command.Start(); err != nil {
		t.Fatalf("start tcpdump: %v", err)
	}
	t.Cleanup(func() {
		if d.command.ProcessState == nil {
			_ = d.command.Process.Kill()
			_ = d.command.Wait()
		}
	})
	return d
}

func (d *tcpdump) awaitListening(t *testing.T) {
	t.Helper()
	eventually(t, "tcpdump listens", func() bool {
		return bytes.Contains(d.stderr(t), []byte("listening on"))
	})
}

func (d *tcpdump) stderr(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(d.errors)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var summary = regexp.MustCompile(`(\d+) packets? captured\n(\d+) packets? received by filter\n0 packets? dropped by kernel\n`)

// interrupt waits until tcpdump has written the expected number of frames, and
// interrupts it.
func (d *tcpdump) interrupt(t *testing.T, expected int) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Second)
	for len(d.written(t)) < expected-1 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if err := d.command.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// result waits for the end of tcpdump and returns the frames that it wrote. It must have
// written all frames that its filter accepted, except one of the first round.
func (d *tcpdump) result(t *testing.T) []uint32 {
	t.Helper()
	if err := d.command.Wait(); err != nil {
		t.Fatalf("tcpdump: %v\n%s", err, d.stderr(t))
	}
	found := summary.FindSubmatch(d.stderr(t))
	if found == nil || number(t, found[1]) < number(t, found[2])-1 {
		t.Fatalf("tcpdump did not write all its frames:\n%s", d.stderr(t))
	}
	return d.written(t)
}

func number(t *testing.T, text []byte) int {
	t.Helper()
	n, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// written returns the numbers of our frames in the file so far.
func (d *tcpdump) written(t *testing.T) []uint32 {
	t.Helper()
	raw, err := os.ReadFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	file, err := pcapgo.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("read pcap: %v", err)
	}
	var numbers []uint32
	for {
		frame, _, err := file.ReadPacketData()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return numbers
		}
		if err != nil {
			t.Fatalf("read pcap: %v", err)
		}
		if number, ok := numberOf(frame); ok {
			numbers = append(numbers, number)
		}
	}
}

// eventually fails the test if the condition does not come true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long until %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
