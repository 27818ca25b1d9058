package cli

import (
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/kind"
)

// kubectl asks the plugin for completions by __complete, in each shell.
func TestComplete(t *testing.T) {
	s := newAPIServer(t, kind.Trace)
	s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
	ring := newAPIServer(t, kind.Trace)
	ring.add(&v1alpha1.PacketCapture{Spec: v1alpha1.PacketCaptureSpec{Rotate: &v1alpha1.Rotate{MaxBytes: 1 << 20, Files: 2}}}, v1alpha1.PhaseCapturing)
	tests := map[string]struct {
		words []string
		want  []string
		not   string
	}{
		"a running capture": {[]string{"follow", ""}, []string{"web"}, "deploy"},
		"a running ring":    {[]string{"follow", ""}, []string{"web"}, "deploy"},
		"a workload":        {[]string{"capture", ""}, []string{"deploy/web"}, "sts/"},
		"one to trace":      {[]string{"trace", "dep"}, []string{"deploy/web"}, "pcap"},
		"flags":             {[]string{"capture", "--"}, []string{"--live", "--wireshark", "--top", "--delay"}, "--extcap"},
		"flags of follow":   {[]string{"follow", "--"}, []string{"--wireshark", "--delay"}, "--live"},
		"extcap":            {[]string{"extcap", ""}, []string{"install", "uninstall"}, "run"},
		"nothing more":      {[]string{"follow", "web", ""}, nil, "web"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := s
			if name == "a running ring" {
				s = ring
			}
			args := append([]string{"__complete", "-n", "shop", "--server", s.url}, tc.words...)
			r := startWith(t, s, func(*Options) {}, args...)
			r.await(t, report.ExitOK)
			got := r.out.String()
			for _, want := range tc.want {
				if !strings.Contains("\n"+got, "\n"+want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			if strings.Contains("\n"+got, "\n"+tc.not) {
				t.Errorf("%q in\n%s", tc.not, got)
			}
		})
	}
}
