package sidecar

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// TestDecode: the webhook reads the fields of a Pod that Inject needs.
func TestDecode(t *testing.T) {
	want := webPod()
	want.Labels = map[string]string{"app": "web"}
	want.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	want.Spec.InitContainers = []corev1.Container{{Name: "migrate"}}
	want.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	whole := want.DeepCopy()
	whole.Spec.Tolerations = []corev1.Toleration{{Key: "x"}}
	raw, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeMetadata(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := decodeLists(raw, got); err != nil {
		t.Fatal(err)
	}
	want.GenerateName = ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLargePodsOnTheHeap: what a Pod takes of the manager's memory, however small the elements of its lists are.
func TestLargePodsOnTheHeap(t *testing.T) {
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]" }
	mounts := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"name":"v"},`, n), ",") + "]"
	}
	for name, tc := range map[string]struct {
		spec string
		want string // part of the refusal
	}{
		"tolerations":     {spec: `"containers":[{"name":"web"}],"tolerations":` + list(560_000)},
		"terms":           {spec: `"containers":[{"name":"web"}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":` + list(560_000) + `}}}`},
		"mounts":          {spec: `"containers":[{"name":"web","volumeMounts":` + mounts(19_000) + `}]`},
		"many mounts":     {spec: `"containers":[{"name":"web","volumeMounts":` + mounts(120_000) + `}]`, want: "may have 256 KiB"},
		"containers":      {spec: `"containers":` + list(85_000), want: "more than 256 containers"},
		"init containers": {spec: `"containers":[{"name":"web"}],"initContainers":` + list(256), want: "more than 256 containers"},
		"volumes":         {spec: `"containers":[{"name":"web"}],"volumes":` + list(1025), want: "1024 volumes"},
	} {
		t.Run(name, func(t *testing.T) {
			req, h := request(t, webPod()), newWorld().handler(t)
			req.Object.Raw = []byte(`{"metadata":{"annotations":{"monitoring.openshift.tpg/fluent-pvc-name":"logs"}},"spec":{` + tc.spec + `}}`)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			resp := h.Handle(t.Context(), req)
			runtime.ReadMemStats(&after)
			if tc.want == "" && !resp.Allowed {
				t.Errorf("refused: %v", resp.Result)
			}
			if tc.want != "" {
				webhooktest.Refused(t, resp, webhooktest.Invalid, tc.want)
			}
			taken := (after.TotalAlloc - before.TotalAlloc) >> 10
			t.Logf("a Pod of %d KiB takes %d KiB of the heap", len(req.Object.Raw)>>10, taken)
			if taken > 24<<10 {
				t.Errorf("it takes %d KiB of the heap", taken)
			}
		})
	}
}
