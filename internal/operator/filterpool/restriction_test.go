package filterpool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/test/privileged"
)

// takenOver is an argument of the test's binary that makes it a child that attacks its parent, the test. A second one
// says how the child is confined.
const (
	takenOver       = "taken-over"
	unconfined      = "unconfined"
	asChild         = "as-child"
	withoutLandlock = "without-landlock" // seccomp refuses it, as older profiles of runtimes do
)

// secretText is in the parent's file and memory.
const secretText = "a-token-of-the-manager"

// victim is the parent as its child finds it.
type victim struct {
	PID     int
	File    string
	FD      uintptr
	Address uintptr // of secretText in its memory
	TCP     string
	Socket  string // abstract
}

// Attacks of a child on its parent.
const (
	attackToken       = "token"
	attackEnvironment = "environment"
	attackMemory      = "memory"
	attackOpenFile    = "open file"
	attackProgram     = "program"
	attackTCP         = "TCP"
	attackSocket      = "abstract socket"
	attackSignal      = "signal"
)

// attack returns which attacks work.
func (v victim) attack() []string {
	proc := fmt.Sprintf("/proc/%d/", v.PID)
	holds := func(path string) bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(b), secretText)
	}
	reaches := func(network, address string) bool {
		c, err := net.Dial(network, address)
		return err == nil && c.Close() == nil
	}
	b := make([]byte, len(secretText))
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	_, memory := unix.ProcessVMReadv(v.PID, []unix.Iovec{local}, []unix.RemoteIovec{{Base: v.Address, Len: len(b)}}, 0)
	_, environment := os.ReadFile(proc + "environ")
	worked := []string{}
	for name, works := range map[string]bool{
		attackToken:       holds(v.File),
		attackEnvironment: environment == nil,
		attackMemory:      memory == nil && string(b) == secretText,
		attackOpenFile:    holds(fmt.Sprintf("%sfd/%d", proc, v.FD)),
		attackProgram:     exec.Command("/bin/true").Run() == nil,
		attackTCP:         reaches("tcp", v.TCP),
		attackSocket:      reaches("unix", v.Socket),
		attackSignal:      unix.Kill(v.PID, 0) == nil,
	} {
		if works {
			worked = append(worked, name)
		}
	}
	slices.Sort(worked)
	return worked
}

// takenOverReport is what a child finds out.
type takenOverReport struct {
	InForce restriction.InForce
	Worked  []string
	Program string // of the filter that it compiled after its attacks
}

// requests is the input of a child: it attacks when it is about to read the first request, and then asks for a filter.
type requests struct {
	io.Reader
	attack func()
}

// Read implements io.Reader.
func (r *requests) Read(b []byte) (int, error) {
	if r.attack != nil {
		r.attack()
		r.attack = nil
	}
	return r.Reader.Read(b)
}

// beTakenOver reads a victim from its input, attacks it where a child reads users' text, and prints a report.
func beTakenOver(mode string) error {
	var v victim
	if err := json.NewDecoder(os.Stdin).Decode(&v); err != nil {
		return err
	}
	var r takenOverReport
	attack := func() { r.Worked = v.attack() }
	if mode == unconfined {
		attack()
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	if mode == withoutLandlock {
		if err := refuseLandlock(); err != nil {
			return err
		}
	}
	var in, out bytes.Buffer
	if err := writeFrame(&in, request{Expression: "ip", Link: pcapfilter.LinkEthernet}); err != nil {
		return err
	}
	if err := serve([]string{quick.name}, &requests{&in, attack}, &out); err != nil {
		return err
	}
	var ready, compiled answer
	if err := errors.Join(readFrame(&out, &ready), readFrame(&out, &compiled)); err != nil {
		return err
	}
	r.InForce, r.Program = ready.Restrictions, compiled.Program.String()
	return json.NewEncoder(os.Stdout).Encode(r)
}

// refuseLandlock makes landlock_create_ruleset(2) fail with EPERM on all threads.
func refuseLandlock() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return fmt.Errorf("set a system call filter: %w", errno)
	}
	return nil
}

// beVictim makes this process a victim until the test ends. It returns the secret, too, which must stay in memory.
func beVictim(t *testing.T) (victim, []byte) {
	t.Helper()
	secret := []byte(secretText)
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, secret, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	v := victim{
		PID: os.Getpid(), File: path, FD: f.Fd(), Address: uintptr(unsafe.Pointer(&secret[0])),
		Socket: fmt.Sprintf("@sonde-filterpool-test-%d", os.Getpid()),
	}
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": v.Socket} {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if network == "tcp" {
			v.TCP = l.Addr().String()
		}
	}
	return v, secret
}

// TestChildTakenOver attacks the manager from inside its child, at the moment when the child reads a user's text, and as
// the manager's user. The first case is the control: a child as it would be without its confinement. In the last the
// kernel has no Landlock.
func TestChildTakenOver(t *testing.T) {
	privileged.Need(t) // the memory of another process
	all := []string{attackTCP, attackSocket, attackEnvironment, attackMemory, attackOpenFile, attackProgram, attackSignal, attackToken}
	const ip = "4,40 0 0 12,21 0 1 2048,6 0 0 262144,6 0 0 0"
	v, secret := beVictim(t)
	for name, tc := range map[string]struct {
		mode    string
		program string
		why     string
	}{
		"control":          {mode: unconfined},
		"child":            {mode: asChild, program: ip},
		"without Landlock": {mode: withoutLandlock, program: ip, why: "the kernel has no Landlock, or seccomp refuses it: operation not permitted"},
	} {
		t.Run(name, func(t *testing.T) {
			got := takeOver(t, tc.mode, v)
			r := got.InForce
			t.Logf("restrictions: %+v", r)
			want := slices.DeleteFunc(slices.Clone(all), func(attack string) bool {
				switch attack {
				case attackSocket:
					return r.Landlock >= restriction.VersionSignals
				case attackTCP:
					return r.Landlock >= restriction.VersionTCP
				case attackSignal:
					return r.Signals
				default:
					return r.Files
				}
			})
			if diff := cmp.Diff(want, got.Worked); diff != "" {
				t.Errorf("attacks that worked (-want +got):\n%s", diff)
			}
			if got.Program != tc.program && tc.mode != unconfined {
				t.Errorf("it compiled %q", got.Program)
			}
			if tc.mode != asChild && r != (restriction.InForce{Why: tc.why}) {
				t.Errorf("restrictions %+v, want none, and why %q", r, tc.why)
			}
			if tc.mode == asChild && r.Files != (r.Landlock > 0) {
				t.Errorf("restrictions %+v are not those of version %d", r, r.Landlock)
			}
		})
	}
	if string(secret) != secretText {
		t.Error("the secret has changed")
	}
}

func takeOver(t *testing.T, mode string, v victim) (r takenOverReport) {
	t.Helper()
	in, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", takenOver, mode)
	cmd.Env, cmd.Stdin, cmd.Stderr = []string{}, bytes.NewReader(in), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRestrictionsAreLogged: what is in force, or what is missing and why.
func TestRestrictionsAreLogged(t *testing.T) {
	for name, tc := range map[string]struct {
		inForce restriction.InForce
		want    []string
	}{
		"none": {restriction.InForce{Why: "the kernel has none"}, []string{"without Landlock", "the kernel has none"}},
		"all":  {restriction.InForce{Landlock: 7, Files: true, Signals: true}, []string{"Confining the filter compiler", `"landlock"=7`}},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			logRestrictions(logTo(&lines), tc.inForce)
			for _, want := range tc.want {
				if len(lines) != 1 || !strings.Contains(lines[0], want) {
					t.Errorf("logged %q, want %q", lines, want)
				}
			}
		})
	}
}

// logTo keeps the lines of a log.
func logTo(lines *[]string) logr.Logger {
	return funcr.New(func(_, line string) { *lines = append(*lines, line) }, funcr.Options{})
}
