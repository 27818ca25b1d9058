package stamp

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
)

var (
	testKey  = bytes.Repeat([]byte{7}, KeyBytes)
	admitted = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func testSpec() sondev1.PacketCaptureSpec {
	follow := true
	return sondev1.PacketCaptureSpec{
		TargetDeployment: "web", Duration: "30s", Filter: "tcp port 80", SnapLength: 262144, MaxBytes: 1 << 40,
		FollowPods: &follow, RetainFor: "1h",
	}
}

func testClaim() Claim {
	return Claim{
		Requester:          access.Requester{Username: "alice", Groups: []string{"dev"}, Extra: map[string][]string{"scopes": {"user:full"}}},
		TargetNamespaceUID: "ns-1", IssuedAt: admitted.Add(345 * time.Millisecond),
	}
}

func sign(t *testing.T, spec any) map[string]string {
	t.Helper()
	a, err := Sign(testKey, "shop", "PacketCapture", spec, testClaim())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// resource holds the arguments of Verify.
type resource struct {
	key             []byte
	namespace, kind string
	spec            sondev1.PacketCaptureSpec
	annotations     map[string]string
	created         time.Time
}

func TestVerify(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*resource)
		want   error
	}{
		"as admitted":          {change: func(*resource) {}},
		"stopped since":        {change: func(r *resource) { r.spec.Stop = true }},
		"created a bit later":  {change: func(r *resource) { r.created = admitted.Add(MaxSkew) }},
		"webhook clock behind": {change: func(r *resource) { r.created = admitted.Add(-MaxSkew) }},
		"other annotations":    {change: func(r *resource) { r.annotations["note"] = "mine" }},

		"never stamped":        {change: func(r *resource) { r.annotations = nil }, want: ErrMissing},
		"stamp removed":        {change: func(r *resource) { delete(r.annotations, sondev1.AnnotationStamp) }, want: ErrMissing},
		"requester removed":    {change: func(r *resource) { delete(r.annotations, sondev1.AnnotationRequester) }, want: ErrMissing},
		"stamp of other bytes": {change: func(r *resource) { r.annotations[sondev1.AnnotationStamp] = strings.Repeat("ab", 32) }, want: ErrInvalid},
		"stamp cut":            {change: func(r *resource) { r.annotations[sondev1.AnnotationStamp] = "ab" }, want: ErrInvalid},
		"stamp not hex":        {change: func(r *resource) { r.annotations[sondev1.AnnotationStamp] = strings.Repeat("zz", 32) }, want: ErrInvalid},
		"other key":            {change: func(r *resource) { r.key = bytes.Repeat([]byte{8}, KeyBytes) }, want: ErrInvalid},
		"other requester": {change: func(r *resource) {
			a := r.annotations
			a[sondev1.AnnotationRequester] = strings.Replace(a[sondev1.AnnotationRequester], "alice", "admin", 1)
		}, want: ErrInvalid},
		"other target namespace UID": {change: func(r *resource) {
			a := r.annotations
			a[sondev1.AnnotationRequester] = strings.Replace(a[sondev1.AnnotationRequester], "ns-1", "ns-2", 1)
		}, want: ErrInvalid},
		"fewer fields signed": {change: func(r *resource) {
			a := r.annotations
			a[sondev1.AnnotationRequester] = strings.Replace(a[sondev1.AnnotationRequester], `"filter",`, "", 1)
		}, want: ErrInvalid},
		"requester of noise": {change: func(r *resource) { r.annotations[sondev1.AnnotationRequester] = "{" }, want: ErrInvalid},
		"other namespace":    {change: func(r *resource) { r.namespace = "bank" }, want: ErrInvalid},
		"other kind":         {change: func(r *resource) { r.kind = "ResultAccess" }, want: ErrInvalid},
		"bytes moved between the parts": {change: func(r *resource) {
			r.namespace, r.kind = "sho", "pPacketCapture"
		}, want: ErrInvalid},
		"copied an hour later": {change: func(r *resource) { r.created = admitted.Add(time.Hour) }, want: ErrInvalid},
		"copied into the past": {change: func(r *resource) { r.created = admitted.Add(-MaxSkew - time.Second) }, want: ErrInvalid},
		"filter changed":       {change: func(r *resource) { r.spec.Filter = "" }, want: ErrInvalid},
		"target changed":       {change: func(r *resource) { r.spec.TargetDeployment = "db" }, want: ErrInvalid},
		"target moved to another namespace": {change: func(r *resource) {
			r.spec.TargetNamespace = "bank"
		}, want: ErrInvalid},
		"a large number changed by one": {change: func(r *resource) { r.spec.MaxBytes++ }, want: ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			r := resource{testKey, "shop", "PacketCapture", testSpec(), sign(t, testSpec()), admitted}
			tc.change(&r)
			got, err := Verify(r.key, r.namespace, r.kind, r.spec, r.annotations, r.created)
			if tc.want != nil {
				if !errors.Is(err, tc.want) {
					t.Fatalf("got %v, want %v", err, tc.want)
				}
				if !strings.Contains(err.Error(), "create it again") {
					t.Errorf("error %q does not say what to do", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := testClaim()
			want.Version, want.IssuedAt, want.Fields = Version, admitted, got.Fields
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("claim (-want +got):\n%s", diff)
			}
		})
	}
}

// newerSpec is PacketCaptureSpec of a later version with a new field that has a default.
type newerSpec struct {
	sondev1.PacketCaptureSpec
	Compression string `json:"compression"`
}

func TestStampOutlivesAnUpgradeThatAddsADefault(t *testing.T) {
	a := sign(t, testSpec())
	upgraded := newerSpec{PacketCaptureSpec: testSpec(), Compression: "zstd"}
	if _, err := Verify(testKey, "shop", "PacketCapture", upgraded, a, admitted); err != nil {
		t.Error(err)
	}
	upgraded.Filter = "udp"
	if _, err := Verify(testKey, "shop", "PacketCapture", upgraded, a, admitted); !errors.Is(err, ErrInvalid) {
		t.Errorf("a changed filter beside a new field: got %v, want %v", err, ErrInvalid)
	}
}

func TestSignTakesPointersToo(t *testing.T) {
	spec := testSpec()
	if diff := cmp.Diff(sign(t, spec), sign(t, &spec)); diff != "" {
		t.Errorf("value and pointer differ:\n%s", diff)
	}
}

func TestSignRefuses(t *testing.T) {
	huge := testClaim()
	huge.Requester.Groups = []string{strings.Repeat("g", maxClaimBytes)}
	for name, tc := range map[string]struct {
		key   []byte
		spec  any
		claim Claim
		want  string
	}{
		"a short key":     {key: testKey[:31], spec: testSpec(), claim: testClaim(), want: "key of 31 bytes"},
		"no spec":         {key: testKey, claim: testClaim(), want: "want a struct"},
		"a map":           {key: testKey, spec: map[string]any{"a": 1}, claim: testClaim(), want: "want a struct"},
		"no fields":       {key: testKey, spec: struct{}{}, claim: testClaim(), want: "0 fields"},
		"too many groups": {key: testKey, spec: testSpec(), claim: huge, want: "use an account with fewer groups"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Sign(tc.key, "shop", "PacketCapture", tc.spec, tc.claim)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestParseClaimRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"noise":             {"]", "parse requester"},
		"a later version":   {`{"v":2,"requester":{"username":"a"},"fields":["x"]}`, "upgrade the operator"},
		"no version":        {`{"requester":{"username":"a"},"fields":["x"]}`, "version 0"},
		"no user":           {`{"v":1,"fields":["x"]}`, "no user name"},
		"nothing signed":    {`{"v":1,"requester":{"username":"a"}}`, "0 signed fields"},
		"too many fields":   {`{"v":1,"requester":{"username":"a"},"fields":[` + strings.Repeat(`"x",`, maxFields) + `"x"]}`, "129 signed fields"},
		"too many bytes":    {strings.Repeat(" ", maxClaimBytes+1), "at most"},
		"a number for name": {`{"v":1,"requester":{"username":1},"fields":["x"]}`, "parse requester"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseClaim(tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// FuzzVerify: only stamps that Sign wrote are accepted.
func FuzzVerify(f *testing.F) {
	good, err := Sign(testKey, "shop", "PacketCapture", testSpec(), testClaim())
	if err != nil {
		f.Fatal(err)
	}
	f.Add("shop", good[sondev1.AnnotationRequester], good[sondev1.AnnotationStamp])
	f.Add("bank", good[sondev1.AnnotationRequester], good[sondev1.AnnotationStamp])
	f.Add("shop", `{"v":1,"requester":{"username":"a"},"fields":["stop"]}`, strings.Repeat("00", 32))
	f.Add("shop", `{"v":1,"v":2}`, "")
	f.Fuzz(func(t *testing.T, namespace, requester, signature string) {
		a := map[string]string{sondev1.AnnotationRequester: requester, sondev1.AnnotationStamp: signature}
		_, err := Verify(testKey, namespace, "PacketCapture", testSpec(), a, admitted)
		same := namespace == "shop" && requester == good[sondev1.AnnotationRequester] &&
			strings.EqualFold(signature, good[sondev1.AnnotationStamp])
		if (err == nil) != same {
			t.Errorf("accepted: %t, signed by us: %t", err == nil, same)
		}
	})
}

// FuzzParseClaim: an accepted claim keeps the bounds and survives a round trip.
func FuzzParseClaim(f *testing.F) {
	good, err := Sign(testKey, "shop", "PacketCapture", testSpec(), testClaim())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[sondev1.AnnotationRequester])
	f.Add(`{"v":1,"requester":{"username":"a","extra":{"":null}},"issuedAt":"0001-01-01T00:00:00Z","fields":[""]}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseClaim(text)
		if err != nil {
			return
		}
		if c.Requester.Username == "" || len(c.Fields) > maxFields {
			t.Errorf("accepted %+v", c)
		}
		b, err := json.Marshal(c)
		if err != nil {
			return // a time with a year that JSON cannot say
		}
		if _, err := ParseClaim(string(b)); err != nil && len(b) <= maxClaimBytes {
			t.Errorf("round trip: %v", err)
		}
	})
}

func TestSignDoesNotDependOnTheOrderOfMaps(t *testing.T) {
	c := testClaim()
	c.Requester.Extra = map[string][]string{"a": {"1"}, "b": {"2"}, "c": {"3"}, "d": {"4"}}
	first, err := Sign(testKey, "shop", "PacketCapture", testSpec(), c)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		c.Requester.Extra = maps.Clone(c.Requester.Extra)
		again, err := Sign(testKey, "shop", "PacketCapture", testSpec(), c)
		if err != nil || !maps.Equal(first, again) {
			t.Fatalf("signed differently (%v)", err)
		}
	}
}
