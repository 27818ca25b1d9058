//go:build e2e

package scale

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// memory of one process according to the kernel, in bytes.
type memory struct {
	// Resident set, in two parts: pages of the program's file, which the kernel shares and may drop, and the process's
	// own pages.
	Resident, File, Own int64
}

func (m memory) String() string {
	return fmt.Sprintf("%.1f MiB resident (%.1f own, %.1f of the program's file)", mib(m.Resident), mib(m.Own), mib(m.File))
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// memories watches the processes of all replicas.
type memories struct {
	files map[string]string // /proc/PID/status by replica
	mu    sync.Mutex
	most  map[string]memory
}

// watchMemory samples the memory of all replicas four times a second until the test ends, because the kernel keeps no
// peak of a process's own pages.
func watchMemory(t *testing.T) *memories {
	t.Helper()
	m := &memories{files: map[string]string{}, most: map[string]memory{}}
	pods := cluster.ManagerPods(t)
	for i := range pods {
		id := strings.TrimPrefix(pods[i].Status.ContainerStatuses[0].ContainerID, "containerd://")
		m.files[pods[i].Name] = processOf(t, id)
	}
	done := make(chan struct{})
	var sampler sync.WaitGroup
	sampler.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				m.sample()
			}
		}
	})
	t.Cleanup(func() { close(done); sampler.Wait() })
	return m
}

// processOf finds the manager's process in a container. The machine sees the processes of its nodes.
func processOf(t *testing.T, container string) string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		comm, err1 := os.ReadFile(dir + "/comm")
		cgroup, err2 := os.ReadFile(dir + "/cgroup")
		if err1 == nil && err2 == nil && strings.TrimSpace(string(comm)) == "manager" && strings.Contains(string(cgroup), container) {
			return dir + "/status"
		}
	}
	t.Fatalf("no process of container %s on this machine", container)
	return ""
}

func (m *memories) sample() {
	for name, file := range m.files {
		now, _, err := readMemory(file)
		if err != nil {
			continue // now and peak report it
		}
		m.mu.Lock()
		most := m.most[name]
		m.most[name] = memory{Resident: max(most.Resident, now.Resident), File: max(most.File, now.File), Own: max(most.Own, now.Own)}
		m.mu.Unlock()
	}
}

// readMemory returns the current memory of a process, and the peak of its resident set.
func readMemory(file string) (now memory, peak int64, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return memory{}, 0, err
	}
	for field, to := range map[string]*int64{"VmRSS:": &now.Resident, "RssFile:": &now.File, "RssAnon:": &now.Own, "VmHWM:": &peak} {
		_, rest, _ := strings.Cut(string(b), field)
		if _, err := fmt.Sscanf(rest, "%d kB", to); err != nil {
			return memory{}, 0, fmt.Errorf("no %s in %s: %w", field, file, err)
		}
		*to <<= 10
	}
	return now, peak, nil
}

// now returns the memory of the replica that uses the most.
func (m *memories) now(t *testing.T) memory {
	t.Helper()
	var most memory
	for _, file := range m.files {
		now, _, err := readMemory(file)
		if err != nil {
			t.Fatalf("a replica was restarted, want none: %v", err)
		}
		if now.Resident > most.Resident {
			most = now
		}
	}
	return most
}

// peak returns the highest value of each figure over all replicas.
func (m *memories) peak(t *testing.T) memory {
	t.Helper()
	var most memory
	for name, file := range m.files {
		_, peak, err := readMemory(file)
		if err != nil {
			t.Fatalf("a replica was restarted, want none: %v", err)
		}
		m.mu.Lock()
		most = memory{Resident: max(most.Resident, peak), File: max(most.File, m.most[name].File), Own: max(most.Own, m.most[name].Own)}
		m.mu.Unlock()
	}
	return most
}

// want fails the test if a replica used too much memory.
func (m *memories) want(t *testing.T) {
	t.Helper()
	p := m.peak(t)
	t.Logf("at the peak: %s (goal: %.0f MiB)", p, mib(goalMemory))
	if p.Resident > mostMemory {
		t.Errorf("%s at the peak, want at most %.0f MiB", p, mib(mostMemory))
	}
}

// objectSize returns the size of a capture as JSON, in bytes.
func objectSize(t *testing.T, pc *sondev1.PacketCapture) int {
	t.Helper()
	b, err := json.Marshal(pc)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

// figure is a row of docs/benchmarks.md, section scale.
type figure struct{ what, goal, got string }

// figures writes rows for hack/shard.sh, which assembles the section from one file per part.
func figures(t *testing.T, part string, rows ...figure) {
	t.Helper()
	var text strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&text, "| %s | %s | %s |\n", r.what, r.goal, strings.NewReplacer("map[", "", "]", "").Replace(r.got))
	}
	cluster.WriteFigures(t, part, text.String())
}
