package capture

import "testing"

func TestNoCounts(t *testing.T) {
	const secret = "00112233445566778899aabbccddeeff"
	for name, tc := range map[string]struct{ text, want string }{
		"the operator's own words": {"the agent does not answer", "the agent does not answer"},
		"a webhook's path": {
			`Post "https://sonde-webhook.sonde-system.svc:443/mutate-resultaccess/` + secret + `?timeout=10s": no endpoints available`,
			`Post "https://sonde-webhook.sonde-system.svc:443/...": no endpoints available`,
		},
		"another's path": {"Get https://10.0.0.1/apis/v1: refused", "Get https://10.0.0.1/apis/v1: refused"},
		"a change of leaders": {
			"read progress: stream error: stream ID 5; INTERNAL_ERROR; received from peer",
			"the connection was lost, for example because the operator restarted; the plugin reconnects",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := explainProgressError(tc.text); got != tc.want {
				t.Errorf("explainProgressError() = %q, want %q", got, tc.want)
			}
		})
	}
}
