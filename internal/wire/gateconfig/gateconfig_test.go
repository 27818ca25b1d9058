package gateconfig

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 500, time.FixedZone("", 3600))

func TestArgs(t *testing.T) {
	tests := map[string]struct {
		config Config
		want   string
	}{
		"proceed":        {Config{Timeout: 30 * time.Second, OnTimeout: Proceed}, "gate --timeout 30s --on-timeout Proceed"},
		"fail":           {Config{Timeout: time.Minute, OnTimeout: Fail, Until: noon}, "gate --timeout 60s --on-timeout Fail --until 2026-03-01T11:00:00Z"},
		"parts of a sec": {Config{Timeout: 1500 * time.Millisecond, OnTimeout: Proceed}, "gate --timeout 2s --on-timeout Proceed"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tc.config.Validate(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tc.want, strings.Join(tc.config.Args(), " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		config Config
		want   string
	}{
		"no time":            {Config{OnTimeout: Proceed}, "write between 1s and 10m"},
		"too long":           {Config{Timeout: time.Hour, OnTimeout: Proceed}, "write between 1s and 10m"},
		"neither":            {Config{Timeout: time.Minute}, "write Proceed or Fail"},
		"unknown":            {Config{Timeout: time.Minute, OnTimeout: "fail"}, "write Proceed or Fail"},
		"fail without until": {Config{Timeout: time.Minute, OnTimeout: Fail}, "needs until"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tc.config.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestMessage(t *testing.T) {
	const waited = 1234 * time.Millisecond
	for o := range explanations {
		got, took, ok := ParseMessage(Message(o, waited))
		if got != o || took != waited || !ok {
			t.Errorf("%s became %s, %v, %v", o, got, took, ok)
		}
		if (o.ExitCode() == 0) == (o == Refused || o == Ended) {
			t.Errorf("%s has exit code %d", o, o.ExitCode())
		}
	}
}

func TestMessageOfOthers(t *testing.T) {
	for _, message := range []string{"", "Opened", "Opened after 1s", "opened after 1s: x", "Opened after : x", "Opened after -1s: x", "Opened after soon: x", "panic: Opened after 1s"} {
		if o, _, ok := ParseMessage(message); ok {
			t.Errorf("%q is %s", message, o)
		}
	}
}

func FuzzParseWords(f *testing.F) {
	f.Add(Message(Opened, time.Second))
	f.Add("Opened after 1h1m1.000000001s: x")
	f.Fuzz(func(t *testing.T, message string) {
		if o, waited, ok := ParseMessage(message); ok && (explanations[o] == "" || waited < 0) {
			t.Errorf("%q is %q after %v", message, o, waited)
		}
	})
}
