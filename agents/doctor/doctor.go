package doctor

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"

	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/tc"
	"github.com/sonde-operator/sonde/agents/trace"
	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/internal/wire/nodereport"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// maxReason bounds the reason why a check failed, in bytes: the verifier's log may be long.
const maxReason = 240

// attempt is one check.
type attempt struct {
	name nodereport.Name
	try  func() error
}

// Examine makes all checks on the node whose /proc is at proc. It leaves no change behind.
func Examine(proc string) *nodereport.Report {
	n := node{proc: proc}
	r := &nodereport.Report{
		Version: nodereport.Version, Kernel: release(), Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Cgroup: n.cgroup(), Settings: n.settings(),
	}
	r.Memory, r.Available = n.memory()
	if missing := trace.MissingEvents(decode.AllGroups()); len(missing) > 0 {
		r.Settings = append(r.Settings, nodereport.Setting{Name: "events", Value: strings.Join(missing, ", "), Meaning: "this kernel does not report these events: they are in no trace"})
	}
	r.Settings = append(r.Settings, landlock())
	for _, a := range []attempt{
		{nodereport.Rights, n.rights},
		{nodereport.TCX, packetsBy(tc.TCX)},
		{nodereport.Clsact, packetsBy(tc.Clsact)},
		{nodereport.AFPacket, afPacket},
		{nodereport.BTF, types},
		{nodereport.TypedTP, typedTracepoint},
		{nodereport.RawTP, rawTracepoint},
		{nodereport.TaskStorage, taskStorage},
		{nodereport.SocketStore, socketStorage},
		{nodereport.RingBuffer, ringBuffer},
		{nodereport.Iterator, iterator},
		{nodereport.Cgroups, n.cgroups},
		{nodereport.Tracer, trace.Check},
		{nodereport.SignalByFD, signalByFD},
		{nodereport.FEntry, functionEntry},
		{nodereport.Kprobe, kprobe},
		{nodereport.Uprobe, uprobe},
	} {
		r.Checks = append(r.Checks, a.check())
	}
	r.Conclude()
	return r
}

// check makes the attempt. A panic counts as a failure.
func (a attempt) check() (c nodereport.Check) {
	c.Name = a.name
	defer func() {
		if p := recover(); p != nil { // the other checks must run
			c.Works, c.Why = false, firstLine(fmt.Sprint(p))
		}
	}()
	err := a.try()
	if c.Works = err == nil; err != nil {
		c.Why = firstLine(err.Error())
	}
	return c
}

// firstLine returns the first line of a text, at most maxReason bytes.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return text.Ellipsis(s, maxReason)
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// landlock returns the kernel's version of Landlock, which keepers restrict themselves with.
func landlock() nodereport.Setting {
	version, err := landlocksys.LandlockGetABIVersion()
	if err != nil {
		return nodereport.Setting{Name: "landlock", Value: "none", Meaning: "a keeper sees the command lines of the node's processes"}
	}
	return nodereport.Setting{Name: "landlock", Value: strconv.Itoa(version)}
}

// afPacket opens a packet socket with a ring, as a capture does. It is bound to no protocol and gets no packets.
func afPacket() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
		return fmt.Errorf("ask for TPACKET_V3: %w", err)
	}
	ring := unix.TpacketReq3{Block_size: 1 << 16, Block_nr: 1, Frame_size: 1 << 11, Frame_nr: 1 << 5, Retire_blk_tov: 100}
	if err := unix.SetsockoptTpacketReq3(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &ring); err != nil {
		return fmt.Errorf("make a ring: %w", err)
	}
	return nil
}

// signalByFD checks whether this process could send itself a signal by a pidfd.
func signalByFD() error {
	fd, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("open a pidfd: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); err != nil {
		return fmt.Errorf("signal by pidfd: %w", err)
	}
	return nil
}
