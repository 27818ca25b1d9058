package probe

import (
	"errors"
	"os"
	"testing"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace"
)

// A trace gets the Pod's network namespace, which it keeps until it ends, and none for a Pod on the node's network, which has other
// Pods' connections.
func TestTraceGetsTheNetNS(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, tc := range map[string]struct {
		hostNetwork bool
		want        *os.File
	}{
		"network of the Pod":  {want: file},
		"network of the node": {hostNetwork: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := calls{hostNetwork: tc.hostNetwork, sources: []string{}, config: trace.Config{PodUID: "00000000-0000-4000-8000-000000000000"}}
			_, err := w.attach(&process.NetNS{File: file, Inode: podInode})
			if !errors.Is(err, process.ErrNoProcess) {
				t.Errorf("a Pod without a process: %v", err)
			}
			if w.config.NetNS != tc.want {
				t.Errorf("the trace's namespace is %v, want %v", w.config.NetNS, tc.want)
			}
		})
	}
}
