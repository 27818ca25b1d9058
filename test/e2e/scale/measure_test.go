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

// memory of one process as the kernel tells it, in bytes.
type memory struct {
	// Resident set: pages of the program's file, which the kernel shares and may drop, and the process's own.
	Resident, File, Own int64
}

func (m memory) String() string {
	return fmt.Sprintf("%.1f MiB resident (%.1f own, %.1f of the program's file)", mib(m.Resident), mib(m.Own), mib(m.File))
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// memories watches the processes of all replicas.
type memories struct {
	files map[string]string // by replica, /proc/PID/status
	mu    sync.Mutex
	most  map[string]memory
}

// watchMemory looks at the replicas four times a second until the test ends: of the process's own pages the kernel
// keeps no peak.
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

// processOf finds the manager's process of a container among those of the machine, which sees its nodes' processes.
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
			continue // told by now and peak
		}
		m.mu.Lock()
		most := m.most[name]
		m.most[name] = memory{Resident: max(most.Resident, now.Resident), File: max(most.File, now.File), Own: max(most.Own, now.Own)}
		m.mu.Unlock()
	}
}

// readMemory returns what a process has, and the highest resident set it has had.
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

// now is the memory of the replica that has most.
func (m *memories) now(t *testing.T) memory {
	t.Helper()
	var most memory
	for _, file := range m.files {
		now, _, err := readMemory(file)
		if err != nil {
			t.Fatalf("a replica was restarted: %v", err)
		}
		if now.Resident > most.Resident {
			most = now
		}
	}
	return most
}

// peak is the most that any replica has had of each.
func (m *memories) peak(t *testing.T) memory {
	t.Helper()
	var most memory
	for name, file := range m.files {
		_, peak, err := readMemory(file)
		if err != nil {
			t.Fatalf("a replica was restarted: %v", err)
		}
		m.mu.Lock()
		most = memory{Resident: max(most.Resident, peak), File: max(most.File, m.most[name].File), Own: max(most.Own, m.most[name].Own)}
		m.mu.Unlock()
	}
	return most
}

// want fails the test where a replica has had too much.
func (m *memories) want(t *testing.T) {
	t.Helper()
	p := m.peak(t)
	t.Logf("at the peak: %s (goal: %.0f MiB)", p, mib(goalMemory))
	if p.Resident > mostMemory {
		t.Errorf("%s at the peak, want at most %.0f MiB", p, mib(mostMemory))
	}
}

// objectSize is what a capture takes as JSON, in bytes.
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

// figures leaves rows for hack/shard.sh, which writes the section: a file for each part.
func figures(t *testing.T, part string, rows ...figure) {
	t.Helper()
	var text strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&text, "| %s | %s | %s |\n", r.what, r.goal, strings.NewReplacer("map[", "", "]", "").Replace(r.got))
	}
	cluster.WriteFigures(t, part, text.String())
}
