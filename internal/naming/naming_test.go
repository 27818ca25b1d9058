package naming_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
)

const (
	captureUID = types.UID("c0ffee00-1111-4222-8333-444455556666")
	podUID     = types.UID("deadbeef-1111-4222-8333-444455556666")
)

func TestJobs(t *testing.T) {
	cases := map[string]struct {
		pod  string
		want []string
	}{
		"the source's name when it fits": {
			pod: "web-7d4b9c-x2x4z",
			want: []string{
				"web-7d4b9c-x2x4z-qwer", "web-7d4b9c-x2x4z-qwer-c0ffee00",
				"web-7d4b9c-x2x4z-deadbeef-qwer", "web-7d4b9c-x2x4z-deadbeef-qwer-c0ffee00",
			},
		},
		"63 is the last that fits": {
			pod: strings.Repeat("a", 58),
			want: []string{
				strings.Repeat("a", 58) + "-qwer",
				strings.Repeat("a", 49) + "-deadbeef-qwer", strings.Repeat("a", 40) + "-deadbeef-qwer-c0ffee00",
			},
		},
		"64 does not fit": {
			pod: strings.Repeat("a", 59),
			want: []string{
				strings.Repeat("a", 49) + "-deadbeef-qwer", strings.Repeat("a", 40) + "-deadbeef-qwer-c0ffee00",
			},
		},
		"a cut never ends in a dot": {
			pod: strings.Repeat("a", 48) + "." + strings.Repeat("b", 60),
			want: []string{
				strings.Repeat("a", 48) + "-deadbeef-qwer", strings.Repeat("a", 40) + "-deadbeef-qwer-c0ffee00",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := naming.Jobs(tc.pod, podUID, "qwer", captureUID)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Jobs (-want +got):\n%s", diff)
			}
			for _, n := range got {
				if msgs := append(validation.IsDNS1123Subdomain(n), validation.IsValidLabelValue(n)...); len(msgs) > 0 {
					t.Errorf("name %q: %v", n, msgs)
				}
			}
		})
	}
}

func TestJobsOfLongNamesDiffer(t *testing.T) {
	long := strings.Repeat("x", 200)
	a := naming.Jobs(long+"1", podUID, "qwer", captureUID)
	b := naming.Jobs(long+"2", "0badcafe-0000-4000-8000-000000000000", "qwer", captureUID)
	for i := range a {
		if a[i] == b[i] {
			t.Errorf("two Pods share the name %q", a[i])
		}
	}
}

func TestConfigMapsAndSecrets(t *testing.T) {
	long := strings.Repeat("w", 250)
	cases := map[string]struct {
		namespace, workload       string
		wantConfigMap, wantSecret []string
	}{
		"the source's names": {
			namespace: "openshift-gitops", workload: "openshift-gitops-server",
			wantConfigMap: []string{"openshift-gitops-openshift-gitops-server", "openshift-gitops-openshift-gitops-server-c0ffee00"},
			wantSecret:    []string{"openshift-gitops-openshift-gitops-server-c0ffee00-keeper"},
		},
		"never the ConfigMap of the pause": {
			namespace: "sonde", workload: "config",
			wantConfigMap: []string{"sonde-config-c0ffee00"}, wantSecret: []string{"sonde-config-c0ffee00-keeper"},
		},
		"never another ConfigMap of the operator": {
			namespace: "sonde-demo", workload: "web",
			wantConfigMap: []string{"sonde-demo-web-c0ffee00"}, wantSecret: []string{"sonde-demo-web-c0ffee00-keeper"},
		},
		"too long for both": {
			namespace: "shop", workload: long,
			wantConfigMap: []string{"shop-" + strings.Repeat("w", 230) + "-1f852ae2-c0ffee00"},
			wantSecret:    []string{"shop-" + strings.Repeat("w", 223) + "-1f852ae2-c0ffee00-keeper"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			maps := naming.ConfigMaps(tc.namespace, tc.workload, captureUID)
			secrets := []string{naming.Secret(tc.namespace, tc.workload, captureUID)}
			if diff := cmp.Diff([][]string{tc.wantConfigMap, tc.wantSecret}, [][]string{maps, secrets}); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			for _, n := range append(maps, secrets...) {
				if msgs := validation.IsDNS1123Subdomain(n); len(msgs) > 0 {
					t.Errorf("name %q: %v", n, msgs)
				}
			}
		})
	}
}

func TestCut(t *testing.T) {
	a, b := naming.Cut(strings.Repeat("a", 64), 63), naming.Cut(strings.Repeat("a", 65), 63)
	if len(a) != 63 || len(b) != 63 || a == b {
		t.Errorf("Cut gives %q and %q: want 63 bytes each, and two names", a, b)
	}
	if got := naming.Cut("short", 63); got != "short" {
		t.Errorf("Cut changed a short name to %q", got)
	}
	if got := naming.Cut(strings.Repeat("a", 53)+"..."+strings.Repeat("b", 60), 63); len(validation.IsDNS1123Subdomain(got)) > 0 {
		t.Errorf("Cut gives %q, which is not a valid name", got)
	}
}

func TestShort(t *testing.T) {
	for uid, want := range map[types.UID]string{
		captureUID:     "c0ffee00",
		"C0FFEE11-...": "c0ffee11",
		"pc-uid":       "206c64fb",
		"":             "e3b0c442",
	} {
		if got := naming.Short(uid); got != want {
			t.Errorf("Short(%q) = %q, want %q", uid, got, want)
		}
	}
}

func TestJobID(t *testing.T) {
	free := func(string) bool { return false }
	first := naming.JobID(captureUID, free)
	if !regexp.MustCompile(`^[a-z0-9]{4}$`).MatchString(first) {
		t.Errorf("JobID = %q, want four of [a-z0-9]", first)
	}
	if again := naming.JobID(captureUID, free); again != first {
		t.Errorf("JobID is %q and then %q: a second pass would rename", first, again)
	}
	if other := naming.JobID(captureUID, func(id string) bool { return id == first }); other == first {
		t.Errorf("JobID = %q, which is in use", other)
	}
	if got := naming.JobID(captureUID, func(string) bool { return true }); len(got) != 4 {
		t.Errorf("JobID = %q when all are in use, want one nevertheless", got)
	}
}

func TestLabels(t *testing.T) {
	long := strings.Repeat("n", 60)
	cases := map[string]struct {
		labels    map[string]string
		namespace string
		want      map[string]string
	}{
		"defaults": {
			namespace: "shop",
			want: map[string]string{
				sondev1.LabelAppName: "packet-capture", sondev1.LabelAppInstance: "packet-capture-shop-web",
				sondev1.LabelAppPartOf: "packet-capture-operator", sondev1.LabelAppManagedBy: "sonde",
				sondev1.LabelAppCreatedBy: "packet-capture-operator",
				sondev1.LabelUID:          string(captureUID), sondev1.LabelKind: "PacketCapture",
			},
		},
		"copied, except labels that claim an owner or select our Pods": {
			namespace: "shop",
			labels: map[string]string{
				sondev1.LabelAppName: "mine", sondev1.LabelAppInstance: "", sondev1.LabelAppManagedBy: "kustomize",
				sondev1.LabelUID: "another-uid", sondev1.LabelKind: "Trace", sondev1.LabelTargetPodUID: "x",
				"app.kubernetes.io/component": "manager",
			},
			want: map[string]string{
				sondev1.LabelAppName: "mine", sondev1.LabelAppInstance: "",
				sondev1.LabelAppPartOf: "packet-capture-operator", sondev1.LabelAppManagedBy: "kustomize",
				sondev1.LabelAppCreatedBy: "packet-capture-operator",
				sondev1.LabelUID:          string(captureUID), sondev1.LabelKind: "PacketCapture",
			},
		},
		"a long instance is cut": {
			namespace: long,
			want: map[string]string{
				sondev1.LabelAppName: "packet-capture", sondev1.LabelAppInstance: "packet-capture-" + strings.Repeat("n", 39) + "-7258e528",
				sondev1.LabelAppPartOf: "packet-capture-operator", sondev1.LabelAppManagedBy: "sonde",
				sondev1.LabelAppCreatedBy: "packet-capture-operator",
				sondev1.LabelUID:          string(captureUID), sondev1.LabelKind: "PacketCapture",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			owner := &sondev1.PacketCapture{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pc", UID: captureUID, Labels: tc.labels},
				Spec:       sondev1.PacketCaptureSpec{TargetNamespace: tc.namespace, TargetDeployment: "web"},
			}
			got := naming.Labels(owner)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Labels (-want +got):\n%s", diff)
			}
			for k, v := range got {
				if msgs := validation.IsValidLabelValue(v); len(msgs) > 0 {
					t.Errorf("label %s=%q: %v", k, v, msgs)
				}
			}
		})
	}
}

func TestOwner(t *testing.T) {
	key, ok := naming.ParseOwner(naming.Owner(&metav1.ObjectMeta{Namespace: "ns", Name: "pc"}))
	if want := (types.NamespacedName{Namespace: "ns", Name: "pc"}); !ok || key != want {
		t.Errorf("ParseOwner(Owner) = %v, %v, want %v", key, ok, want)
	}
	for _, bad := range []string{"", "pc", "/pc", "ns/", "a/b/c"} {
		if _, ok := naming.ParseOwner(bad); ok {
			t.Errorf("ParseOwner(%q) is accepted", bad)
		}
	}
}
