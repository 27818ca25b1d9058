package keeper

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/test/privileged"
)

// The tests of this package start their own binary in two roles, by this variable.
const (
	roleVariable = "SONDE_TEST_ROLE"
	roleVictim   = "victim"   // a keeper, or a user's process, that another keeper attacks
	roleAttacker = "attacker" // a keeper that is taken over
)

// The secret in the victim's environment, memory and file.
const (
	secretVariable = "SONDE_TEST_SECRET"
	fileVariable   = "SONDE_TEST_FILE"
	secret         = "a-secret-of-the-victim"
	// withoutLandlock makes seccomp refuse Landlock, as older profiles of runtimes do.
	withoutLandlock = "SONDE_TEST_WITHOUT_LANDLOCK"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case roleVictim:
		err = beVictim(os.Args[1:])
	case roleAttacker:
		err = beAttacker(os.Args[1:])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Getenv(roleVariable), err)
		os.Exit(1)
	}
}

// target is a victim as its attacker finds it.
type target struct {
	PID    int
	Socket string // abstract
	File   string // as the victim sees it
	FD     uintptr
	// Address and Len of the secret in the victim's memory.
	Address uintptr
	Len     int
}

// beVictim prints where its secret is, and waits for its end. With two arguments, the volumes, it restricts itself as a keeper.
func beVictim(volumes []string) error {
	secret := []byte(os.Getenv(secretVariable))
	file := os.Getenv(fileVariable)
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	defer runtime.KeepAlive(secret)
	socket := "@sonde-keeper-test-" + strconv.Itoa(os.Getpid())
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer l.Close()
	// Yama, where the kernel has it, would protect even the control.
	_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
	if len(volumes) > 0 {
		if _, err := Restrict(volumes[0], volumes[1]); err != nil {
			return err
		}
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	if err := json.NewEncoder(os.Stdout).Encode(target{os.Getpid(), socket, file, f.Fd(), uintptr(unsafe.Pointer(&secret[0])), len(secret)}); err != nil {
		return err
	}
	<-ended
	fmt.Println("signalled")
	return nil
}

// Attacks of a keeper on another process.
const (
	attackEnvironment = "environment"
	attackMemory      = "memory"
	attackFile        = "file"
	attackOpenFile    = "open file"
	attackCommandLine = "command line"
	attackSocket      = "abstract socket"
	attackSignal      = "signal"
)

// attacks returns which attacks on a victim find its secret, or reach it.
func attacks(v target, secret string) []string {
	proc := fmt.Sprintf("/proc/%d/", v.PID)
	holds := func(path string) bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(b), secret)
	}
	b := make([]byte, v.Len)
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	remote := unix.RemoteIovec{Base: v.Address, Len: v.Len}
	_, memory := unix.ProcessVMReadv(v.PID, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
	c, socket := net.Dial("unix", v.Socket)
	if socket == nil {
		_ = c.Close()
	}
	_, commandLine := os.ReadFile(proc + "cmdline")
	worked := []string{}
	for name, works := range map[string]bool{
		attackEnvironment: holds(proc + "environ"),
		attackMemory:      memory == nil && string(b) == secret,
		attackFile:        holds(proc + "root" + v.File),
		attackOpenFile:    holds(fmt.Sprintf("%sfd/%d", proc, v.FD)),
		attackCommandLine: commandLine == nil,
		attackSocket:      socket == nil,
		attackSignal:      unix.Kill(v.PID, unix.SIGTERM) == nil,
	} {
		if works {
			worked = append(worked, name)
		}
	}
	slices.Sort(worked)
	return worked
}

// report of an attacker.
type attackReport struct {
	Restrictions restriction.InForce
	Worked       []string
	// Own are the errors of what a keeper must still be able to do.
	Own []string
}

// beAttacker reads a target from its input, attacks it, and prints a report. With two arguments, the volumes, it restricts
// itself first, as a keeper does before it serves.
func beAttacker(volumes []string) error {
	var v target
	if err := json.NewDecoder(os.Stdin).Decode(&v); err != nil {
		return err
	}
	if os.Getenv(withoutLandlock) != "" {
		if err := refuseLandlock(); err != nil {
			return err
		}
	}
	var r attackReport
	if len(volumes) > 0 {
		work, err := asKeeper(volumes[0], volumes[1])
		if err != nil {
			return err
		}
		if r.Restrictions, err = Restrict(volumes[0], volumes[1]); err != nil {
			return err
		}
		if err := work(); err != nil {
			r.Own = append(r.Own, err.Error())
		}
	}
	r.Worked = attacks(v, os.Getenv(secretVariable))
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

// asKeeper opens the volumes as a keeper does, and returns the work that it does with them once it is restricted.
func asKeeper(resultsDir, controlDir string) (func() error, error) {
	var h handler
	var err error
	if h.results, err = openResults(resultsDir); err != nil {
		return nil, err
	}
	if h.control, err = openControl(controlDir); err != nil {
		return nil, err
	}
	return func() error {
		files, err := h.results.list(nil)
		if err != nil || len(files) != 1 || files[0].Bytes != 10 {
			return fmt.Errorf("files %v: %w", files, err)
		}
		return h.control.stop("Stopped")
	}, nil
}

// TestKeepersAreApart attacks a process as a keeper that is taken over would: one that sees its node's processes, runs
// the attacker's code, and has no capability. The first case is the control: two processes of one user, as keepers were.
// Each protection is then shown alone, and the last case has what a keeper has.
func TestKeepersAreApart(t *testing.T) {
	privileged.Need(t)
	const mine, another = captureconfig.FirstKeeperUser, captureconfig.FirstKeeperUser + 1
	all := []string{attackSocket, attackCommandLine, attackEnvironment, attackFile, attackMemory, attackOpenFile, attackSignal}
	kernel := probeLandlock(t)
	for name, tc := range map[string]struct {
		attacker, victim                     uint32
		attackerRestricted, victimRestricted bool
		env                                  []string
		restrictions                         landlocked
		want                                 []string
	}{
		"control: one user":              {attacker: mine, victim: mine, want: all},
		"control: a user's Pod of 65532": {attacker: 65532, victim: 65532, want: all},
		"a user each":                    {attacker: mine, victim: another, want: []string{attackSocket, attackCommandLine}},
		"one user, the victim restricted": {
			attacker: mine, victim: mine, victimRestricted: true, want: []string{attackSocket, attackCommandLine, attackSignal},
		},
		"one user, the attacker restricted": {attacker: mine, victim: mine, attackerRestricted: true, restrictions: kernel, want: kernel.open(all)},
		"keepers": {
			attacker: mine, victim: another, attackerRestricted: true, victimRestricted: true,
			restrictions: kernel, want: kernel.open([]string{attackSocket, attackCommandLine}),
		},
		"keepers, where seccomp refuses Landlock": {
			attacker: mine, victim: another, attackerRestricted: true, victimRestricted: true, env: []string{withoutLandlock + "=1"},
			restrictions: landlocked{Why: "the kernel has no Landlock, or seccomp refuses it: operation not permitted"},
			want:         []string{attackSocket, attackCommandLine},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := startVictim(t, tc.victim, tc.victimRestricted)
			got := attack(t, tc.attacker, v, tc.attackerRestricted, tc.env...)
			if diff := cmp.Diff(tc.want, got.Worked); diff != "" {
				t.Errorf("attacks that worked (-want +got):\n%s", diff)
			}
			if len(got.Own) > 0 {
				t.Errorf("a restricted keeper cannot do its work: %v", got.Own)
			}
			if got.Restrictions != restriction.InForce(tc.restrictions) {
				t.Errorf("restrictions %+v, want %+v", got.Restrictions, tc.restrictions)
			}
		})
	}
}

// landlocked are the restrictions that the running kernel has.
type landlocked restriction.InForce

// open returns the attacks of those in all that the kernel does not prevent.
func (k landlocked) open(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(attack string) bool {
		switch attack {
		case attackSocket:
			return k.Landlock >= restriction.VersionSignals
		case attackSignal:
			return k.Signals
		default:
			return k.Files
		}
	})
}

// probeLandlock returns what a restricted process of this kernel has in force. It fails on a kernel that has Landlock of
// version 6 but whose restrictions are not in force.
func probeLandlock(t *testing.T) landlocked {
	t.Helper()
	v := startVictim(t, captureconfig.FirstKeeperUser, false)
	r := attack(t, captureconfig.FirstKeeperUser, v, true).Restrictions
	t.Logf("Landlock: %+v", r)
	if r.Files != (r.Landlock > 0) || r.Signals != (r.Landlock >= restriction.VersionSignals && r.Why == "") {
		t.Errorf("restrictions %+v are not those of version %d", r, r.Landlock)
	}
	return landlocked(r)
}

// volumesOf makes the volumes of a keeper with a result of ten bytes.
func volumesOf(t *testing.T) []string {
	t.Helper()
	dir := openDir(t)
	volumes := []string{filepath.Join(dir, "results"), filepath.Join(dir, "control")}
	for _, v := range volumes {
		if err := errors.Join(os.Mkdir(v, 0o777), os.Chmod(v, 0o777)); err != nil { // as an emptyDir is
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(volumes[0], "web.pcapng"), "0123456789")
	return volumes
}

// openDir makes a directory that other users may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// role returns a command that runs this binary in a role, as a user without rights.
func role(t *testing.T, name string, user uint32, restricted bool) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	if restricted {
		cmd.Args = append(cmd.Args, volumesOf(t)...)
	}
	cmd.Env = []string{roleVariable + "=" + name, secretVariable + "=" + secret}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: user, Gid: user}}
	cmd.Stderr = os.Stderr
	return cmd
}

func startVictim(t *testing.T, user uint32, restricted bool) target {
	t.Helper()
	cmd := role(t, roleVictim, user, restricted)
	file := filepath.Join(openDir(t), "server.key")
	write(t, file, secret)
	cmd.Env = append(cmd.Env, fileVariable+"="+file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the victim did not start: %v", err)
	}
	var v target
	if err := json.Unmarshal(line, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func attack(t *testing.T, user uint32, v target, restricted bool, env ...string) attackReport {
	t.Helper()
	cmd := role(t, roleAttacker, user, restricted)
	cmd.Env = append(cmd.Env, env...)
	in, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the attacker: %v", err)
	}
	var r attackReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return r
}
