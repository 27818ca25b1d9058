package settings_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/settings"
)

func TestFromEnvironment(t *testing.T) {
	for name, tc := range map[string]struct {
		environment map[string]string
		args        []string
		want        time.Duration
		wantErr     string
	}{
		"nothing set":       {want: 4 * time.Hour},
		"set":               {environment: map[string]string{"SONDE_MAX_DURATION": "30m"}, want: 30 * time.Minute},
		"command line wins": {environment: map[string]string{"SONDE_MAX_DURATION": "30m"}, args: []string{"--max-duration=1h"}, want: time.Hour},
		"not settable":      {environment: map[string]string{"SONDE_WEBHOOK_PORT": "tcp://10.96.0.7:443"}, want: 4 * time.Hour},
		"invalid duration":  {environment: map[string]string{"SONDE_MAX_DURATION": "long"}, wantErr: `SONDE_MAX_DURATION="long"`},
	} {
		t.Run(name, func(t *testing.T) {
			fs := flag.NewFlagSet("manager", flag.ContinueOnError)
			got := fs.Duration("max-duration", 4*time.Hour, "the longest capture")
			fs.Int("webhook-port", 9443, "")
			lookup := func(key string) (string, bool) { v, ok := tc.environment[key]; return v, ok }
			err := settings.FromEnvironment(fs, lookup, "max-duration")
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !strings.Contains(err.Error(), "--max-duration") {
					t.Fatalf("error %v, want %q and the flag in it", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := fs.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			if *got != tc.want {
				t.Errorf("max-duration is %s, want %s", *got, tc.want)
			}
		})
	}
}

func TestUnknownFlag(t *testing.T) {
	always := func(string) (string, bool) { return "1", true }
	if err := settings.FromEnvironment(flag.NewFlagSet("manager", flag.ContinueOnError), always, "no-such"); err == nil {
		t.Error("no error")
	}
}
