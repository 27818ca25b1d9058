package capture

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/pcapng"
	"github.com/sonde-operator/sonde/test/privileged"
)

// A filter is in line, with the function for packets that do not lie in one piece, or, where that cannot be had, a function alone.
func TestFilterIsInLine(t *testing.T) {
	privileged.Need(t)
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	for name, tc := range map[string]struct {
		filter []unix.SockFilter
		lt     pcapng.LinkType
		want   bool
	}{
		"everything": {nil, pcapng.LinkTypeEthernet, true},
		"of raw IP":  {nil, pcapng.LinkTypeRaw, true},
		"a port":     {onlyDiscard[pcapng.LinkTypeEthernet], pcapng.LinkTypeEthernet, true},
		"nothing":    {nothing, pcapng.LinkTypeEthernet, false},
	} {
		t.Run(name, func(t *testing.T) {
			filter, err := program(tc.filter, tc.lt, DefaultSnapLen)
			if err != nil {
				t.Fatal(err)
			}
			p, err := newPrograms(1<<20, DefaultSnapLen)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.close() }()
			var said bytes.Buffer
			if err := p.load(tc.lt, filter, slog.New(slog.NewTextHandler(&said, nil))); err != nil {
				t.Fatal(err)
			}
			var got bool
			if err := p.first.Variables[packetsVarInlined].Get(&got); err != nil || got != tc.want {
				t.Errorf("in line: %t, %v, want %t", got, err, tc.want)
			}
			if logged := strings.Contains(said.String(), "a function alone"); logged == tc.want {
				t.Errorf("the log says %q", said.String())
			}
		})
	}
}
