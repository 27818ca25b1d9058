package tc

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/node/iterator"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	// The pause between two scans grows from minScan to maxScan while packets stay in doubt. It is at least scanShare times as long
	// as a scan, which takes some milliseconds on a node with many processes.
	minScan   = 100 * time.Millisecond
	maxScan   = 500 * time.Millisecond
	scanShare = 50
	// refreshScan is the pause between two scans without any doubt. They find users and names of containers that have changed.
	refreshScan = 5 * time.Second
	// staleAfter is how long claims stay valid while forks keep every scan from a result. Of scanAttempts in turn one may have it.
	staleAfter   = 2 * refreshScan
	scanAttempts = 3
	// firstScans bounds the scans before the capture begins. A scan is repeated if sockets changed hands meanwhile.
	firstScans = 10
	// defaultScanTime bounds a scan, and all scans before the capture begins.
	defaultScanTime = 5 * time.Second
)

// errChanged says that a scan is void, because a socket may have changed hands during it.
var errChanged = errors.New("sockets changed hands during the scan")

// errForks is what the account says if errChanged has been the result for too long.
var errForks = fmt.Errorf("the Pod's processes fork so often that the probe could not find out within %v who has which socket: until it can, packets say %q", staleAfter, pcapng.ProcessUnsettled)

// scanner finds out which processes have which sockets.
type scanner struct {
	objects   *ebpf.Collection
	processes *backend.Processes
	log       *slog.Logger
	within    time.Duration // bounds a scan

	number  uint32
	commits uint64
	settled time.Time // when the last valid scan began
	tried   time.Time // when the last scan began
	pause   time.Duration
	doubts  uint64 // as of the last scan, as the next
	unnamed uint64
	forked  bool         // forks have made the last scan void
	stale   bool         // all claims are void
	problem atomic.Value // of string: why a scan failed, which is logged once

	shared     map[uint64][]uint32 // PIDs that shared a socket in the last scan
	unstable   bool                // others shared a socket in the scan before
	groupOf    map[group]uint64    // claims
	groups     [firstProcess - firstGroup]group
	nextGroup  uint32
	pending    map[uint64]pendingName
	named      map[uint64]bool
	passed     []passCount // the oldest first
	optionsLag bool        // a name was found that is in no option yet
}

// group identifies processes that share a socket, by a hash of their PIDs: of thousands of PIDs, say.
type group [sha256.Size]byte

// pendingName is the name of a container that the next scan confirms if the process is still in its cgroup: a PID may belong to
// another process by now.
type pendingName struct {
	pid  uint32
	name string
}

// passDelay is how long after the programs have noticed a pass the receiver surely has the socket among its files.
const passDelay = time.Second

// passCount is how many passes the programs had noticed at a time.
type passCount struct {
	at     time.Time
	passes uint64
}

func (s *scanner) get(name string, to any) error {
	if err := s.objects.Variables[name].Get(to); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// effective returns how many passes have surely taken effect, if the programs have noticed so many by now.
func (s *scanner) effective(now time.Time, passes uint64) uint64 {
	s.passed = append(s.passed, passCount{now, passes})
	for len(s.passed) > 1 && now.Sub(s.passed[1].at) >= passDelay {
		s.passed = s.passed[1:]
	}
	if first := s.passed[0]; now.Sub(first.at) >= passDelay {
		return first.passes
	}
	return 0
}

// first scans before the capture begins. Doubts of packets repeat a scan that has found no answer, or had no time left.
func (s *scanner) first() error {
	end := time.Now().Add(s.within)
	for i := range firstScans {
		err := s.scan(end)
		switch {
		case errors.Is(err, errChanged):
		case errors.Is(err, iterator.ErrSlow) && i > 0:
			return nil
		case err != nil || !s.unfinished() && !s.unstable:
			return err
		}
	}
	return nil
}

// next scans if packets are in doubt and the pause is over.
func (s *scanner) next(now time.Time) {
	var doubts, unnamed uint64
	if err := errors.Join(s.get(namedVarDoubts, &doubts), s.get(namedVarUnnamed, &unnamed)); err != nil {
		return // the variables exist as long as the programs
	}
	s.expire(now)
	s.reportBlind()
	doubtful := doubts != s.doubts || unnamed != s.unnamed || s.unfinished() || s.unstable
	if now.Sub(s.tried) < max(s.pause, minScan) || !doubtful && now.Sub(s.settled) < refreshScan {
		return
	}
	s.doubts = doubts
	err := errors.Join(s.attempt(now), s.get(namedVarUnnamed, &s.unnamed)) // the scan itself writes options without a name
	if s.pause *= 2; err == nil && !doubtful {
		s.pause = minScan
	}
	s.pause = max(min(s.pause, maxScan), minScan, scanShare*time.Since(s.tried))
	if err != nil && !s.forked {
		s.report(err)
	}
	s.expire(time.Now())
}

// attempt scans until a scan has a result that forks have not made void.
func (s *scanner) attempt(now time.Time) (err error) {
	for range scanAttempts {
		err = s.scan(now.Add(s.within))
		if s.forked = errors.Is(err, errChanged); !s.forked {
			break
		}
	}
	return err
}

// expire voids all claims if forks have kept scans from a result for too long. It does not wait for the next scan, which may be late.
func (s *scanner) expire(now time.Time) {
	if !s.forked || s.stale || now.Sub(s.settled) < staleAfter {
		return
	}
	s.stale = true
	err := errors.Join(s.set(map[string]any{namedVarStale: true}), s.set(map[string]any{namedVarSole: noProcess})) // in this order
	s.report(errors.Join(errForks, err))
}

// report keeps and logs why scans have no result, once.
func (s *scanner) report(err error) {
	if s.failure() != "" {
		return
	}
	s.log.Warn("Looking for the holders of sockets failed", "error", err)
	s.problem.Store(err.Error())
}

// reportBlind keeps and logs errBlind, once. Whatever scans said before may end, and this does not.
func (s *scanner) reportBlind() {
	var blind bool
	if s.get(namedVarBlind, &blind) != nil || !blind || s.failure() == errBlind.Error() {
		return
	}
	s.log.Warn("Packets name no process any more", "reason", errBlind)
	s.problem.Store(errBlind.Error())
}

// failure says why packets name no process any more, else why the first scan during the capture failed that did; empty if none has. It may
// be called concurrently.
func (s *scanner) failure() string {
	why, _ := s.problem.Load().(string)
	return why
}

// unfinished reports whether the next scan completes the names of containers.
func (s *scanner) unfinished() bool { return s.optionsLag || len(s.pending) > 0 }

// scan reads who has which socket, and makes that the sockets' claims. Without an answer by the deadline, its error is
// iterator.ErrSlow.
func (s *scanner) scan(deadline time.Time) error {
	s.tried = time.Now()
	var passes, forks uint64
	if err := errors.Join(s.get(namedVarPasses, &passes), s.get(namedVarForks, &forks)); err != nil {
		return err
	}
	s.number++
	err := s.set(map[string]any{
		namedVarScan: s.number, namedVarCommit: false, namedVarScanPasses: s.effective(s.tried, passes), namedVarNextSole: uint32(0),
	})
	if err != nil {
		return err
	}
	if err := s.readTasks(deadline); err != nil {
		return err
	}
	found, err := s.read(deadline)
	if err != nil {
		return err
	}
	if err := s.unchanged(forks); err != nil {
		return err
	}
	s.nameContainers(found)
	if err := s.putGroups(found); err != nil {
		return err
	}
	if err := s.set(map[string]any{namedVarCommit: true}); err != nil {
		return err
	}
	_, err = s.read(deadline)
	s.commits++ // also after some of the claims: the programs must not use what they remember of these sockets
	if err := errors.Join(err, s.set(map[string]any{namedVarCommits: s.commits})); err != nil {
		return err
	}
	s.settled = s.tried
	if s.stale {
		s.stale = false
		if err := s.set(map[string]any{namedVarStale: false}); err != nil {
			return err
		}
	}
	return s.widen()
}

// noProcess is NO_PROCESS of bpf/headers/sockets.h.
const noProcess = ^uint32(0)

// widen makes the claims of those processes valid that the scan has found no reason to doubt. A program that narrows them meanwhile
// changes next_sole first, so that either this sees it, or the program changes sole later.
func (s *scanner) widen() error {
	var fence atomic.Uint32
	for {
		next, err := s.nextSole()
		if err != nil {
			return err
		}
		if err := s.set(map[string]any{namedVarSole: next}); err != nil {
			return err
		}
		fence.Add(1) // what follows is read after the write
		again, err := s.nextSole()
		if err != nil || again == next {
			return err
		}
	}
}

// nextSole returns the only process whose claims are valid after a scan.
func (s *scanner) nextSole() (next uint32, err error) {
	var blind bool
	if err := errors.Join(s.get(namedVarNextSole, &next), s.get(namedVarBlind, &blind)); err != nil {
		return 0, err
	}
	if blind {
		return noProcess, nil
	}
	return next, nil
}

// errBlind is why no packet names a process any more.
var errBlind = errors.New("the Pod has had more than 1,700 processes at a time, or its processes have received 16,384 sockets over Unix sockets: " +
	"no further packet can name its process")

func (s *scanner) set(values map[string]any) error {
	for name, value := range values {
		if err := s.objects.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// read runs the scanning program over all files of all processes.
func (s *scanner) read(deadline time.Time) ([]namedHolding, error) {
	found, err := iterator.Read(s.objects.Programs[namedProgSondeScan], deadline, readHoldings)
	if err != nil {
		return nil, fmt.Errorf("look for the holders of sockets: %w", explainProcesses(err))
	}
	return found, nil
}

// readTasks runs the scanning program over all threads.
func (s *scanner) readTasks(deadline time.Time) error {
	discard := func(r io.Reader) (int64, error) { return io.Copy(io.Discard, r) }
	if _, err := iterator.Read(s.objects.Programs[namedProgSondeTasks], deadline, discard); err != nil {
		return fmt.Errorf("look for threads with io_urings or files of their own: %w", explainProcesses(err))
	}
	return nil
}

// maxHoldings bounds what a scan finds, and so the probe's memory. With more, no scan has a result.
const maxHoldings = 1 << 16

var errTooMany = fmt.Errorf("the processes in the Pod's network have more than %d sockets, where each counts once for each process that has it", maxHoldings)

// readHoldings reads the output of a scan, and returns each socket of each process once: a process can have a million descriptors
// of one socket.
func readHoldings(r io.Reader) (all []namedHolding, err error) {
	type holding struct {
		socket uint64
		pid    uint32
	}
	known := map[holding]bool{}
	var h namedHolding
	for {
		_, err := io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h)))
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read sockets: %w", err)
		}
		key := holding{h.Socket, h.Pid}
		if known[key] {
			continue // only the first one of a process has its container
		}
		if len(all) == maxHoldings {
			return nil, errTooMany
		}
		known[key] = true
		all = append(all, h)
	}
}

// unchanged returns errChanged if a process that was forked meanwhile may have sockets of its parent. A socket that was passed
// meanwhile stays in doubt by itself.
func (s *scanner) unchanged(before uint64) error {
	var now uint64
	if err := s.get(namedVarForks, &now); err != nil || now == before {
		return err
	}
	var tgid, slot uint32
	living := s.objects.Maps[namedMapProcesses].Iterate()
	for living.Next(&tgid, &slot) {
		var r namedProcess
		if err := s.objects.Maps[namedMapRecords].Lookup(slot, &r); err != nil {
			return fmt.Errorf("read processes: %w", err)
		}
		if r.Forked > before {
			return errChanged
		}
	}
	if living.Err() != nil {
		return errChanged // processes come and go
	}
	return nil
}

// nameContainers gives the programs the names of containers. The next scan writes the options anew.
func (s *scanner) nameContainers(found []namedHolding) {
	s.optionsLag = false
	for i := range found {
		h := &found[i]
		if p, ok := s.pending[h.Container]; ok && p.pid == h.Pid {
			s.setName(h.Container, p.name)
		}
	}
	clear(s.pending)
	for i := range found {
		h := &found[i]
		if h.Container == 0 || s.named[h.Container] || s.pending[h.Container].pid != 0 || s.processes.Container == nil {
			continue
		}
		if name := s.processes.Container(int(h.Pid)); name != "" {
			s.pending[h.Container] = pendingName{h.Pid, name}
		}
	}
}

// setName gives the programs the name of a container. If there is no room for it, its packets do not name it.
func (s *scanner) setName(container uint64, name string) {
	var value namedName
	for i, c := range []byte(name[:min(len(name), len(value.Text)-1)]) {
		value.Text[i] = int8(c)
	}
	s.named[container] = true
	delete(s.pending, container)
	s.optionsLag = s.objects.Maps[namedMapContainers].Put(container, &value) == nil || s.optionsLag
}

// putGroups gives the programs the claims of the sockets that several processes have.
func (s *scanner) putGroups(found []namedHolding) error {
	m := s.objects.Maps[namedMapGroups]
	if err := empty(m); err != nil {
		return fmt.Errorf("forget groups of processes: %w", err)
	}
	before := s.shared
	s.shared, s.unstable = sharedSockets(found), false
	written := uint32(0)
	for socket, pids := range s.shared {
		if written == m.MaxEntries() {
			break // the packets of the others say why they are in doubt, and not who shares the socket
		}
		if !slices.Equal(before[socket], pids) {
			s.unstable = true // one may be a child that is about to start another program
			continue
		}
		claim, err := s.groupClaim(pids)
		if err != nil {
			return err
		}
		if err := m.Put(socket, claim); err != nil {
			return fmt.Errorf("describe groups of processes: %w", err)
		}
		written++
	}
	return nil
}

// empty deletes all entries of a map by addresses.
func empty(m *ebpf.Map) error {
	var address uint64
	var value []byte
	var all []uint64
	for entries := m.Iterate(); entries.Next(&address, &value); {
		all = append(all, address)
	}
	for _, address := range all {
		if err := m.Delete(address); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	return nil
}

// sharedSockets returns the PIDs that share each socket. found has each socket of each process once.
func sharedSockets(found []namedHolding) map[uint64][]uint32 {
	holders := map[uint64][]uint32{}
	for i := range found {
		h := &found[i]
		holders[h.Socket] = append(holders[h.Socket], h.Pid)
	}
	for socket, pids := range holders {
		if len(pids) < 2 {
			delete(holders, socket)
		}
		slices.Sort(pids)
	}
	return holders
}

// groupClaim returns the claim of a group, and writes its record if it is new. The oldest group gives its slot to a new one.
func (s *scanner) groupClaim(pids []uint32) (uint64, error) {
	key := group(sha256.Sum256(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(pids))), 4*len(pids))))
	if claim, ok := s.groupOf[key]; ok {
		return claim, nil
	}
	n := s.nextGroup
	s.nextGroup++
	at := int(n) % len(s.groups)
	delete(s.groupOf, s.groups[at])
	s.groups[at] = key
	generation := n/uint32(len(s.groups)) + 1
	claim := uint64(generation<<slotBits | uint32(firstGroup+at))
	s.groupOf[key] = claim
	return claim, putRecord(s.objects, claim, &pcapng.Process{Reason: pcapng.ProcessShared, SharedBy: pids})
}
