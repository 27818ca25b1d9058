package ceiling_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
)

func TestCheck(t *testing.T) {
	limits := ceiling.Limits{Duration: time.Hour, Bytes: 1 << 30}
	for name, tc := range map[string]struct {
		limits   ceiling.Limits
		duration string
		bytes    int64
		want     []string // in the message; none: admitted
	}{
		"at the ceilings": {limits: limits, duration: "1h", bytes: 1 << 30},
		"too long":        {limits: limits, duration: "3601", bytes: 1, want: []string{"3601", "1h0m0s", "cluster admin", "--max-duration"}},
		"too large":       {limits: limits, duration: "1s", bytes: 1<<30 + 1, want: []string{"1073741825", "at most 1073741824", "cluster admin", "--max-bytes"}},
		"the default is too long": {
			limits: ceiling.Limits{Duration: 30 * time.Second}, duration: "60s", bytes: 1,
			want: []string{"duration 60s (the default; set spec.duration, or --for of kubectl sonde)", "at most 30s", "cluster admin"},
		},
		"the default is too large": {
			limits: ceiling.Limits{Bytes: 1 << 20}, duration: "1s", bytes: 1 << 30,
			want: []string{"maxBytes 1073741824 (the default; set spec.maxBytes, or --max-bytes of kubectl sonde)", "at most 1048576", "cluster admin"},
		},
		"no ceilings":        {duration: "24h", bytes: 1 << 40},
		"not to be read":     {limits: limits, duration: "long", bytes: 1},
		"the webhook's zero": {limits: limits, duration: "", bytes: 0},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.limits.Check(sondev1.Common{Duration: tc.duration, MaxBytes: tc.bytes})
			if (err != nil) != (len(tc.want) > 0) {
				t.Fatalf("Check() = %v, want %q", err, tc.want)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if isDefault := strings.HasPrefix(name, "the default"); err != nil && strings.Contains(err.Error(), "the default") != isDefault {
				t.Errorf("%q, want it called the default: %v", err, isDefault)
			}
		})
	}
}

// TestDefaultsOfTheSchema compares the defaults with the CRD. If they differed, the refusal would not name the field to
// set.
func TestDefaultsOfTheSchema(t *testing.T) {
	b, err := os.ReadFile("../../../config/crd/bases/monitoring.openshift.tpg_packetcaptures.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties struct {
							Spec struct {
								Properties struct {
									Duration struct{ Default string }
									MaxBytes struct{ Default int64 }
								}
							}
						}
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(b, &crd); err != nil || len(crd.Spec.Versions) == 0 {
		t.Fatalf("no version in the CRD (%v)", err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties.Spec.Properties
	for name, tc := range map[string]struct {
		limits ceiling.Limits
		spec   sondev1.Common
	}{
		"duration": {ceiling.Limits{Duration: time.Second}, sondev1.Common{Duration: spec.Duration.Default}},
		"maxBytes": {ceiling.Limits{Bytes: 1}, sondev1.Common{MaxBytes: spec.MaxBytes.Default}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.limits.Check(tc.spec); err == nil || !strings.Contains(err.Error(), "(the default; set spec."+name) {
				t.Errorf("Check() = %v, which does not call it the default", err)
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
		"none":     {args: []string{"--max-duration=0", "--max-bytes=0", "--max-probes-per-node=0", "--max-results-per-node=0"}, valid: true},
		"one permitted result is above the bytes of a namespace": {args: []string{"--max-bytes=1099511627776"}, valid: true},
		"negative bytes": {args: []string{"--max-namespace-bytes-per-node=-1"}},
		"negative":       {args: []string{"--max-pods-per-capture=-1"}},
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

// TestDurationOf: a capture without a duration is bounded too.
func TestDurationOf(t *testing.T) {
	for name, tc := range map[string]struct {
		ceiling time.Duration
		spec    string
		want    time.Duration
	}{
		"its own":        {ceiling: 4 * time.Hour, spec: "90s", want: 90 * time.Second},
		"by the ceiling": {ceiling: 4 * time.Hour, want: 4 * time.Hour},
		"by itself":      {want: 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := (ceiling.Limits{Duration: tc.ceiling}).DurationOf(sondev1.Common{Duration: tc.spec}); err != nil || got != tc.want {
				t.Errorf("DurationOf() = %s, %v; want %s", got, err, tc.want)
			}
		})
	}
}
