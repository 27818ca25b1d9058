package opener

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/internal/wire/handover"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
	"github.com/sonde-operator/sonde/test/privileged"
)

// These variables make the test binary an opener or a carrier in a process of its own.
const (
	roleVariable     = "SONDE_OPENER_ROLE"
	socketVariable   = "SONDE_OPENER_SOCKET"
	landlockVariable = "SONDE_OPENER_LANDLOCK"
	carrierUser      = 65532
)

func TestMain(m *testing.M) {
	socket := os.Getenv(socketVariable)
	switch os.Getenv(roleVariable) {
	case "opener":
		os.Exit(beOpener(socket))
	case "carrier":
		endWith(beCarrier(socket))
	case "taken over":
		endWith(beTakenOver(socket))
	default:
		os.Exit(m.Run())
	}
}

func endWith(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// beOpener opens the namespace that it inherits as file 3. The Pod lives until its input ends.
func beOpener(socket string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	o := New(&Options{
		PodName: "web-1", CarrierUser: carrierUser, Socket: socket, Ready: socket + ".ready", TerminationLog: socket + ".end",
	}, log)
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(gone)
	}()
	o.target = inherited{os.NewFile(3, "netns"), gone}
	return o.Run(ctx)
}

// inherited is a target whose network namespace is an open file.
type inherited struct {
	ns  *os.File
	end chan struct{}
}

func (i inherited) open() (*process.NetNS, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(i.ns.Fd()), &st)
	return &process.NetNS{File: i.ns, Inode: st.Ino}, err
}

func (i inherited) node() (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat("/proc/self/ns/net", &st)
	return st.Ino, err
}

func (i inherited) gone(ctx context.Context, _ uint64) error {
	select {
	case <-i.end:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beCarrier answers the steered connections, and follows commands from its input.
func beCarrier(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := handover.Connect(ctx, socket)
	if err != nil {
		return err
	}
	fmt.Println("connected", len(c.Listeners()))
	for _, l := range c.Listeners() {
		go serve(l, "CARRIER")
	}
	go func() {
		<-c.Done()
		fmt.Println("gone")
		os.Exit(0)
	}()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println(follow(ctx, c, strings.Fields(in.Text())))
	}
	return in.Err()
}

// follow executes one command of a carrier.
func follow(ctx context.Context, c *handover.Client, command []string) string {
	switch command[0] {
	case "steer":
		port, err := strconv.ParseUint(command[1], 10, 16)
		if err == nil {
			err = c.Steer(ctx, uint16(port), command[2] == "on")
		}
		return fmt.Sprint(err)
	case "listeners":
		var all []string
		for _, l := range c.Listeners() {
			all = append(all, l.Addr().String())
		}
		return strings.Join(all, " ")
	case "dial":
		conn, err := c.Dial(ctx, netip.MustParseAddrPort(command[1]))
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		return said(question(conn))
	}
	return "unknown command"
}

func said(answer string, err error) string {
	if err != nil {
		return err.Error()
	}
	return answer
}

// world is a Pod with an app, an opener and a carrier.
type world struct {
	*testNet
	t               *testing.T
	keep            map[uintptr]bool // capabilities of the opener
	socket          string
	before          map[string]bool // listening sockets
	apps            net.Listener
	opener, carrier *child
	program         ebpf.ProgramID
}

// child is a process of the test binary.
type child struct {
	*exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	log  bytes.Buffer
	done chan struct{} // closed when it has ended
}

// start starts a process in a role. setup completes its command and starts it.
func (w *world) start(role string, setup func(*exec.Cmd) error) *child {
	w.t.Helper()
	c := &child{Cmd: exec.Command("/proc/self/exe"), done: make(chan struct{})}
	c.Env = append(os.Environ(), roleVariable+"="+role, socketVariable+"="+w.socket)
	c.Stderr = &c.log
	in, err := c.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, w2, err := os.Pipe() // not StdoutPipe: Wait would close it before the last line is read
	if err != nil {
		w.t.Fatal(err)
	}
	c.in, c.out, c.Stdout = in, bufio.NewReader(out), w2
	err = setup(c.Cmd)
	_ = w2.Close()
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		_ = c.Wait()
		close(c.done)
	}()
	w.t.Cleanup(func() {
		_ = c.Process.Kill()
		<-c.done
		_ = out.Close()
		if w.t.Failed() {
			w.t.Logf("%s:\n%s", role, c.log.String())
		}
	})
	return c
}

// newWorld starts an opener with only the capabilities in keep (all if nil), and a carrier that steers no port.
func newWorld(t *testing.T, keep map[uintptr]bool) *world {
	t.Helper()
	w := newOpener(t, keep)
	w.carrier = w.startCarrier(carrierUser)
	w.says("connected 2")
	return w
}

// newOpener starts an opener, and returns when it is ready.
func newOpener(t *testing.T, keep map[uintptr]bool) *world {
	t.Helper()
	w := &world{testNet: newTestNet(t), t: t, keep: keep}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { // as an emptyDir is
		t.Fatal(err)
	}
	w.socket = filepath.Join(dir, "opener.sock")
	if err := os.WriteFile(w.socket+".end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.apps = w.app(t, "APP", appPort)
	w.app(t, "OTHER", otherPort)
	w.before = listening(t, w.pod)
	w.opener = w.start("opener", func(cmd *exec.Cmd) error {
		cmd.ExtraFiles = []*os.File{w.pod}
		if keep == nil {
			return cmd.Start()
		}
		privileged.StartWith(t, cmd, keep)
		return nil
	})
	eventually(t, "the opener is ready", func() (string, bool) {
		select {
		case <-w.opener.done:
			t.Fatalf("the opener has ended: %s", w.opener.log.String())
		default:
		}
		_, err := os.Stat(w.socket + ".ready")
		return fmt.Sprint(err), err == nil
	})
	attached := w.links()
	if len(attached) != 1 {
		t.Fatalf("%d programs are attached, want 1", len(attached))
	}
	w.program = attached[0]
	return w
}

func (w *world) startCarrier(user uint32) *child {
	w.t.Helper()
	return w.start("carrier", func(cmd *exec.Cmd) error {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user, NoSetGroups: false}}
		return cmd.Start()
	})
}

// links returns the programs that are attached to the Pod's network namespace.
func (w *world) links() (programs []ebpf.ProgramID) {
	w.t.Helper()
	for {
		programs, err := w.tryLinks()
		if err == nil {
			return programs
		}
		if !errors.Is(err, unix.EAGAIN) { // a link of any process is being made
			w.t.Fatal(err)
		}
	}
}

func (w *world) tryLinks() (programs []ebpf.ProgramID, err error) {
	all := &link.Iterator{}
	defer all.Close()
	for all.Next() {
		info, err := all.Link.Info()
		if errors.Is(err, unix.ENOENT) {
			continue // it has gone
		}
		if err != nil {
			return nil, err
		}
		if ns := info.NetNs(); ns != nil && uint64(ns.NetnsInode) == w.inode {
			programs = append(programs, info.Program)
		}
	}
	return programs, all.Err()
}

func (w *world) says(want string) {
	w.t.Helper()
	if got := w.hear(); got != want {
		w.t.Fatalf("the carrier says %q, want %q", got, want)
	}
}

func (w *world) hear() string {
	w.t.Helper()
	line, err := w.carrier.out.ReadString('\n')
	if err != nil {
		w.t.Fatalf("read what the carrier says: %v", err)
	}
	return strings.TrimSpace(line)
}

// tell gives the carrier a command and returns its answer.
func (w *world) tell(command string) string {
	w.t.Helper()
	if _, err := fmt.Fprintln(w.carrier.in, command); err != nil {
		w.t.Fatal(err)
	}
	return w.hear()
}

// steer begins or ends steering of the app's port.
func (w *world) steer(on bool) {
	w.t.Helper()
	word := map[bool]string{true: "on", false: "off"}[on]
	if got := w.tell("steer " + appPort + " " + word); got != "<nil>" {
		w.t.Fatalf("steer %s: %s", word, got)
	}
}

// steered begins to steer the app's port, and waits until the carrier answers.
func (w *world) steered() {
	w.t.Helper()
	w.steer(true)
	answers(w.t, w.node, podIP+":"+appPort, "CARRIER")
}

func (w *world) signal(c *child, s syscall.Signal) {
	w.t.Helper()
	if err := c.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

// ends waits for the opener's end with a reason, and checks that it has left nothing.
func (w *world) ends(code int, reason handover.Reason) {
	w.t.Helper()
	w.awaitEnd(w.opener)
	b, err := os.ReadFile(w.socket + ".end")
	if err != nil {
		w.t.Fatal(err)
	}
	outcome, err := handover.ParseOutcome(b)
	if got := w.opener.ProcessState.ExitCode(); err != nil || got != code || outcome.Reason != reason || outcome.Message == "" {
		w.t.Errorf("exit code %d, outcome %+v, %v; want %d, %s", got, outcome, err, code, reason)
	}
	w.nothingLeft()
}

func (w *world) awaitEnd(c *child) {
	w.t.Helper()
	select {
	case <-c.done:
	case <-time.After(testTimeout):
		w.t.Fatalf("not ended within %v", testTimeout)
	}
}

// nothingLeft checks that nothing of the opener and the carrier is left in the kernel. The carrier must have ended, too.
func (w *world) nothingLeft() {
	w.t.Helper()
	if w.carrier != nil {
		w.awaitEnd(w.carrier)
	}
	eventually(w.t, "nothing is left", func() (string, bool) {
		program, err := ebpf.NewProgramFromID(w.program)
		if err == nil {
			_ = program.Close()
		}
		now, attached := listening(w.t, w.pod), w.links()
		return fmt.Sprintf("program %v, links %v, listeners %v (before %v)", program, attached, now, w.before),
			err != nil && len(attached) == 0 && maps.Equal(now, w.before)
	})
}

// settings returns the capabilities of the opener in each privilege setting.
func settings(t *testing.T) map[privilege.Setting]map[uintptr]bool {
	t.Helper()
	needed := map[uintptr]bool{}
	for _, c := range privilege.Needed(false) {
		needed[uintptr(c.Bit)] = true
	}
	if kernelBefore(t, 6, 9) {
		needed[unix.CAP_NET_ADMIN] = true // for the map of sockets
	}
	return map[privilege.Setting]map[uintptr]bool{privilege.Privileged: nil, privilege.Capabilities: needed}
}
