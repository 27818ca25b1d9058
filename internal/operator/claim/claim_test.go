package claim

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

var key = bytes.Repeat([]byte{7}, 32)

func TestNewName(t *testing.T) {
	form := regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?-[0-9a-f]{8}-[a-z2-7]{10}$`)
	seen := map[string]bool{}
	for _, fluentPVC := range []string{"logs", "logs.eu", strings.Repeat("a", 63), strings.Repeat("b-", 31) + "b"} {
		for range 100 {
			name := NewName("shop", fluentPVC)
			if !form.MatchString(name) || len(name) > 60 || seen[name] {
				t.Errorf("name %q of %d bytes, seen before: %v", name, len(name), seen[name])
			}
			seen[name] = true
			if !IsName(name) {
				t.Errorf("IsName(%q) is false", name)
			}
		}
	}
	a, b := NewName("shop", "logs"), NewName("bank", "logs")
	if a[:len("logs-01234567")] == b[:len("logs-01234567")] {
		t.Errorf("%s and %s of two namespaces have the same hash", a, b)
	}
}

func TestIsName(t *testing.T) {
	for _, name := range []string{
		"", "data", "data-db-0", "logs-01234567", "logs-0123456g-abcdefghij", "logs-01234567-abcdefghi1", "logs-01234567-abcdefghi",
		strings.Repeat("a", 41) + "-01234567-abcdefghij", "a-00000000-aaaaaaaaaa,b-11111111-bbbbbbbbbb", "A-00000000-aaaaaaaaaa",
	} {
		if IsName(name) {
			t.Errorf("IsName(%q) is true", name)
		}
	}
}

func TestParse(t *testing.T) {
	ref := Ref{FluentPVC: "logs", Claim: "logs-01234567-abcdefghij"}
	signed := ref.Sign(key, "shop")
	if got, ok := Parse(key, "shop", signed); !ok || got != ref {
		t.Errorf("Parse(%q) = %+v, %v", signed, got, ok)
	}
	tests := map[string]struct{ namespace, annotation string }{
		"another namespace": {"bank", signed},
		"another claim":     {"shop", strings.Replace(signed, "abcdefghij", "abcdefghik", 1)},
		"another FluentPVC": {"shop", "x" + signed},
		"moved slash":       {"shop", strings.Replace(signed, "logs/logs-", "logs-/logs", 1)},
		"no signature":      {"shop", "logs/logs-01234567-abcdefghij"},
		"an empty one":      {"shop", "logs/logs-01234567-abcdefghij/"},
		"not hex":           {"shop", "logs/logs-01234567-abcdefghij/zz"},
		"more":              {"shop", signed + "/"},
		"in capitals":       {"shop", ref.FluentPVC + "/" + ref.Claim + "/" + strings.ToUpper(signed[strings.LastIndex(signed, "/")+1:])},
		"nothing":           {"shop", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, ok := Parse(key, tc.namespace, tc.annotation); ok {
				t.Errorf("Parse(%q) = %+v", tc.annotation, got)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("shop", "logs/logs-01234567-abcdefghij/00")
	f.Fuzz(func(t *testing.T, namespace, annotation string) {
		if ref, ok := Parse(key, namespace, annotation); ok && ref.Sign(key, namespace) != annotation {
			t.Errorf("%q is accepted and signs as %q", annotation, ref.Sign(key, namespace))
		}
	})
}
