package probe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

func configText(t *testing.T, uid string) string {
	t.Helper()
	text, err := captureconfig.Config{UID: uid, SnapLength: 1, MaxBytes: 1, RingBytes: 1}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The kubelet may still have an earlier capture's ConfigMap mounted, which had the same name.
func TestConfigurationOfAnotherCaptureIsRefused(t *testing.T) {
	cases := map[string]struct {
		refreshed bool
		wantErr   string
	}{
		"refreshed in time": {refreshed: true},
		"never refreshed":   {wantErr: "belongs to capture uid-0, not uid-1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), captureconfig.Key)
			write(t, file, configText(t, "uid-0"))
			wait := 10 * time.Millisecond
			if tc.refreshed {
				wait = time.Minute
				next := file + ".new"
				write(t, next, configText(t, "uid-1"))
				timer := time.AfterFunc(20*time.Millisecond, func() { _ = os.Rename(next, file) })
				defer timer.Stop()
			}
			p := New(&Options{CaptureUID: "uid-1", ConfigFile: file}, nil, nil)
			p.waits = waits{config: wait, retry: time.Millisecond}
			cfg, err := p.readConfig(t.Context())
			switch {
			case tc.wantErr == "" && (err != nil || cfg.UID != "uid-1"):
				t.Errorf("configuration of %q, error %v", cfg.UID, err)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("error %v, want %q in it", err, tc.wantErr)
			}
		})
	}
}
