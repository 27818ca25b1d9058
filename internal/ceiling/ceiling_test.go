package ceiling_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/ceiling"
)

func TestCheck(t *testing.T) {
	limits := ceiling.Limits{Duration: time.Hour, Bytes: 1 << 30}
	for name, tc := range map[string]struct {
		limits   ceiling.Limits
		duration string
		bytes    int64
		want     []string // in the message; none: admitted
	}{
		"at the ceilings":    {limits: limits, duration: "1h", bytes: 1 << 30},
		"too long":           {limits: limits, duration: "3601", bytes: 1, want: []string{"3601", "1h0m0s", "cluster admin", "--max-duration"}},
		"too large":          {limits: limits, duration: "1s", bytes: 1<<30 + 1, want: []string{"1073741825", "at most 1073741824", "cluster admin", "--max-bytes"}},
		"no ceilings":        {duration: "24h", bytes: 1 << 40},
		"not to be read":     {limits: limits, duration: "long", bytes: 1},
		"the webhook's zero": {limits: limits, duration: "", bytes: 0},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.limits.Check(&sondev1.PacketCaptureSpec{Duration: tc.duration, MaxBytes: tc.bytes})
			if (err != nil) != (len(tc.want) > 0) {
				t.Fatalf("Check() = %v, want %q", err, tc.want)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func TestFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args  []string
		valid bool
	}{
		"defaults": {valid: true},
		"none":     {args: []string{"--max-duration=0", "--max-bytes=0", "--max-probes-per-node=0"}, valid: true},
		"negative": {args: []string{"--max-pods-per-capture=-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var l ceiling.Limits
			fs := flag.NewFlagSet(name, flag.ContinueOnError)
			l.BindFlags(fs)
			if err := fs.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			if err := l.Valid(); (err == nil) != tc.valid {
				t.Errorf("Valid() = %v, want valid %v", err, tc.valid)
			}
		})
	}
}
