package tc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	ebpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Sizes of bpf/headers/processes.h.
const (
	slotBits     = 11
	firstGroup   = 64
	firstProcess = 320
)

// processMaps are the maps of the programs that name processes.
var processMaps = []string{
	namedMapRecords, namedMapProcesses, namedMapContainers, namedMapPassed, namedMapGroups, namedMapMptcpClaims, namedMapFlows, namedMapOutcomes,
}

// tracingHooks are the programs that follow processes, in the order in which they are attached: who creates a socket is
// recorded last, when nothing that happens to it can be missed.
var tracingHooks = []string{
	namedProgSondeFork, namedProgSondeExec, namedProgSondeRename, namedProgSondeEnd,
	namedProgSondeAccept, namedProgSondeReceive, namedProgSondeRegister,
}

// hooks are all programs that are not attached to interfaces.
var hooks = append(slices.Clone(tracingHooks), namedProgSondeCreate, namedProgSondeScan, namedProgSondeTasks)

// leaveOutIOUring removes the program that follows io_urings where the kernel, whose types are given, has none.
func leaveOutIOUring(programs map[string]*ebpf.ProgramSpec, kernel *btf.Spec) {
	if _, err := kernel.AnyTypeByName("btf_trace_io_uring_register"); errors.Is(err, btf.ErrNotFound) {
		delete(programs, namedProgSondeRegister)
	}
}

// namespace identifies the network namespace whose sockets are followed.
type namespace struct {
	inode  uint32
	cookie uint64
}

func identify(ns int) (n namespace, err error) {
	err = links.InNetNS(ns, func() error {
		var st unix.Stat_t
		if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
			return fmt.Errorf("inspect network namespace: %w", err)
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open socket: %w", err)
		}
		defer func() { _ = unix.Close(fd) }()
		cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		if err != nil {
			return fmt.Errorf("read the network namespace's cookie: %w", err)
		}
		n = namespace{inode: uint32(st.Ino), cookie: cookie}
		return nil
	})
	return n, err
}

// processConstants are the programs' constants for a capture that names processes.
func processConstants(p *backend.Processes, ns namespace) map[string]any {
	return map[string]any{
		namedVarPodCgroup: p.Cgroup, namedVarPodLevel: p.Level, namedVarCgroupV1: p.CgroupV1,
		namedVarNodeLevel: p.PIDLevel, namedVarNetns: ns.inode, namedVarNetnsCookie: ns.cookie,
	}
}

// attribution follows the processes of a capture's Pod, so that packets name them.
type attribution struct {
	cfg     *backend.Config
	objects *ebpf.Collection
	links   []ebpflink.Link
	scans   scanner
	kick    chan struct{}
	done    chan struct{} // closed when follow has returned
}

// follow attaches the programs that follow processes, and looks at all sockets that are open already.
func follow(cfg *backend.Config, objects *ebpf.Collection) (*attribution, error) {
	a := &attribution{cfg: cfg, objects: objects, kick: make(chan struct{}, 1), done: make(chan struct{})}
	a.scans = scanner{
		objects: objects, processes: cfg.Processes, log: cfg.Log, within: cmp.Or(cfg.Processes.ScanTime, defaultScanTime),
		settled: time.Now(), groupOf: map[group]uint64{}, pending: map[uint64]pendingName{}, named: map[uint64]bool{},
	}
	close(a.done)
	if err := errors.Join(a.describeReasons(), a.attach()); err != nil {
		return nil, errors.Join(err, a.close())
	}
	if err := a.scans.first(); err != nil {
		return nil, errors.Join(err, a.close())
	}
	a.done = make(chan struct{})
	go a.run()
	return a, nil
}

// describeReasons writes the records of reasons.
func (a *attribution) describeReasons() error {
	for _, r := range pcapng.ProcessReasons() {
		if err := putRecord(a.objects, uint64(r), &pcapng.Process{Reason: r}); err != nil {
			return err
		}
	}
	return nil
}

// putRecord writes a record that is no process's.
func putRecord(objects *ebpf.Collection, claim uint64, p *pcapng.Process) error {
	r := namedProcess{Claim: claim, Used: 1}
	o := &r.Options[0]
	o.Length = uint32(copy(o.Bytes[:], pcapng.AppendProcess(nil, p)))
	if err := objects.Maps[namedMapRecords].Put(uint32(claim&(1<<slotBits-1)), &r); err != nil {
		return fmt.Errorf("describe processes: %w", err)
	}
	return nil
}

func (a *attribution) attach() error {
	for _, name := range tracingHooks {
		if a.objects.Programs[name] == nil {
			continue // leaveOutIOUring
		}
		l, err := ebpflink.AttachTracing(ebpflink.TracingOptions{Program: a.objects.Programs[name]})
		if err != nil {
			return fmt.Errorf("attach %s: %w", name, explainProcesses(err))
		}
		a.links = append(a.links, l)
	}
	dir, err := openCgroup(a.cfg.Processes)
	if err != nil {
		return err
	}
	defer dir.Close()
	l, err := ebpflink.AttachCgroup(ebpflink.CgroupOptions{
		Path: fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), Attach: ebpf.AttachCGroupInetSockCreate, Program: a.objects.Programs[namedProgSondeCreate],
	})
	if err != nil {
		return fmt.Errorf("attach %s: %w", namedProgSondeCreate, explainProcesses(err))
	}
	a.links = append(a.links, l)
	return nil
}

// explainProcesses adds a remedy to an error of the kernel.
func explainProcesses(err error) error {
	if errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("%w: names of processes need Linux 5.19 or later with BTF (/sys/kernel/btf/vmlinux)", err)
	}
	return explain(err)
}

// wake lets run look for doubts. It never blocks.
func (a *attribution) wake() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// run scans when packets are in doubt, until kick is closed.
func (a *attribution) run() {
	defer close(a.done)
	for range a.kick {
		a.scans.next(time.Now())
	}
}

// outcomes returns how many packets had no process, by reason.
func (a *attribution) outcomes() (counts [firstGroup]uint64, err error) {
	m := a.objects.Maps[namedMapOutcomes]
	for cpu := range m.MaxEntries() {
		var each [firstGroup]uint64
		if err := m.Lookup(cpu, &each); err != nil {
			return counts, fmt.Errorf("count packets without a process: %w", err)
		}
		for i, n := range each {
			counts[i] += n
		}
	}
	return counts, nil
}

// close detaches the programs.
func (a *attribution) close() error {
	close(a.kick)
	<-a.done
	var errs []error
	for _, l := range a.links {
		errs = append(errs, l.Close())
	}
	a.links = nil
	return errors.Join(errs...)
}
