package webhookpath_test

import (
	"regexp"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
)

// noon begins a period.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func secretAt(key string, t time.Time) webhookpath.Secret {
	return webhookpath.New([]byte(key), clocktesting.NewFakePassiveClock(t))
}

func TestCurrent(t *testing.T) {
	segment := func(key string, at time.Time) string {
		s, _ := secretAt(key, at).Current()
		return s
	}
	one := segment("key", noon)
	if !regexp.MustCompile(`^/[0-9a-f]{32}$`).MatchString(one) {
		t.Errorf("segment %q can be guessed", one)
	}
	if last := noon.Add(webhookpath.Period - 1); segment("key", last) != one {
		t.Error("the segment changes within a period")
	}
	for what, other := range map[string]string{
		"another key": segment("another", noon), "the next period": segment("key", noon.Add(webhookpath.Period)),
		"the period before": segment("key", noon.Add(-1)),
	} {
		if other == one {
			t.Errorf("%s has the same segment", what)
		}
	}
	if _, left := secretAt("key", noon.Add(10*time.Minute)).Current(); left != webhookpath.Period-10*time.Minute {
		t.Errorf("the segment changes in %s", left)
	}
}

// TestAccepts: a segment that has leaked is worthless soon, and no change of the segment refuses a review of the API server.
func TestAccepts(t *testing.T) {
	const path = webhookpath.Trace
	segment, _ := secretAt("key", noon).Current()
	end := noon.Add(webhookpath.Period)
	for name, tc := range map[string]struct {
		key  string
		at   time.Time
		want bool
	}{
		"in its period":                      {"key", noon.Add(30 * time.Minute), true},
		"a replica whose clock is behind":    {"key", noon.Add(-webhookpath.Overlap), true},
		"long before":                        {"key", noon.Add(-webhookpath.Overlap - 1), false},
		"the leader has not written the new": {"key", end.Add(webhookpath.Overlap - 1), true},
		"after the overlap":                  {"key", end.Add(webhookpath.Overlap), false},
		"a day later":                        {"key", end.Add(24 * time.Hour), false},
		"another key":                        {"another", noon.Add(30 * time.Minute), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := secretAt(tc.key, tc.at)
			if got := s.Accepts(path, path+segment); got != tc.want {
				t.Errorf("accepted: %t, want %t", got, tc.want)
			}
			for _, url := range []string{path, path + "/", segment, webhookpath.Gate + segment} {
				if s.Accepts(path, url) {
					t.Errorf("accepts %q", url)
				}
			}
		})
	}
}
