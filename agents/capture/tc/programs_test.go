package tc

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/frames"
	"github.com/sonde-operator/sonde/test/privileged"
)

// A filter is inlined, and is also a function for bytes outside of the linear part. If it cannot be inlined, it is only
// a function.
func TestFilterIsInLine(t *testing.T) {
	privileged.Need(t)
	nothing := bpfprog.Program{{Code: unix.BPF_RET | unix.BPF_K}}
	for name, tc := range map[string]struct {
		filter  bpfprog.Program
		lt      pcapng.LinkType
		refused bool // by the verifier if inlined
		want    bool
	}{
		"everything":     {nil, pcapng.LinkTypeEthernet, false, true},
		"raw IP":         {nil, pcapng.LinkTypeRaw, false, true},
		"a port":         {frames.OnlyDiscard()[pcapng.LinkTypeEthernet], pcapng.LinkTypeEthernet, false, true},
		"nothing":        {nothing, pcapng.LinkTypeEthernet, false, false},
		"refused":        {frames.OnlyDiscard()[pcapng.LinkTypeEthernet], pcapng.LinkTypeEthernet, true, false},
		"refused raw IP": {frames.OnlyDiscard()[pcapng.LinkTypeRaw], pcapng.LinkTypeRaw, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			filter, err := backend.Filter(tc.filter, tc.lt, snapLen)
			if err != nil {
				t.Fatal(err)
			}
			p, err := newPrograms(1<<20, snapLen)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.close() }()
			if tc.refused {
				p.create = refuseInLine
			}
			var said bytes.Buffer
			if err := p.load(tc.lt, filter, slog.New(slog.NewTextHandler(&said, nil))); err != nil {
				t.Fatal(err)
			}
			var got bool
			if err := p.first.Variables[packetsVarInlined].Get(&got); err != nil || got != tc.want {
				t.Errorf("in line: %t, %v, want %t", got, err, tc.want)
			}
			if strings.Contains(said.String(), "!read_ok") != tc.refused {
				t.Errorf("the log does not have just the verifier's reason: %q", said.String())
			}
			if logged := strings.Contains(said.String(), "a function only"); logged == tc.want {
				t.Errorf("the log says %q", said.String())
			}
		})
	}
}

// refuseInLine makes the verifier reject programs with an inlined filter. No real filter is known that it rejects only
// there.
func refuseInLine(spec *ebpf.CollectionSpec, options ebpf.CollectionOptions) (*ebpf.Collection, error) {
	var inline bool
	if err := spec.Variables[packetsVarInlined].Get(&inline); err != nil {
		return nil, err
	}
	for _, name := range []string{packetsProgSondeIn, packetsProgSondeOut} {
		if p := spec.Programs[name]; inline {
			p.Instructions = slices.Insert(slices.Clone(p.Instructions), 1, asm.Mov.Reg(asm.R8, asm.R9)) // R9 is not set
		}
	}
	return ebpf.NewCollectionWithOptions(spec, options)
}
