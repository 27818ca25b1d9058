package sidecar

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/claim"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
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
	if err := decodeLists(raw, got, &fluentPVC("logs").Spec); err != nil {
		t.Fatal(err)
	}
	want.GenerateName = ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// atTheBounds is a Pod with as many containers, volumes and bytes as one with a FluentPVC may have.
func atTheBounds(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := webPod()
	for i := len(pod.Spec.Containers); i < sidecar.MaxContainers; i++ {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: fmt.Sprint("c", i), Image: "web:1"})
	}
	for i := range maxVolumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", Value: "x"}}
	pod.Spec.Containers[0].Env[0].Value += strings.Repeat("x", maxListBytes-listBytes(t, pod))
	if n := listBytes(t, pod); n != maxListBytes {
		t.Fatalf("%d bytes", n)
	}
	return pod
}

func listBytes(t *testing.T, pod *corev1.Pod) (n int) {
	t.Helper()
	for _, list := range []any{pod.Spec.Volumes, pod.Spec.InitContainers, pod.Spec.Containers} {
		b, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		n += len(b)
	}
	return n
}

// TestCalledAgainAtTheBounds: what this webhook has added does not count when the API server calls it again, or when a user copies the Pod.
func TestCalledAgainAtTheBounds(t *testing.T) {
	small := fluentPVC("logs").Spec
	large := *small.DeepCopy()
	large.CommonEnvs = []corev1.EnvVar{
		{Name: "TEXT", Value: strings.Repeat("x", 400)},
		{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
	}
	large.CommonVolumes = []corev1.Volume{{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
	large.CommonVolumeMounts = []corev1.VolumeMount{{Name: "secret", MountPath: "/s"}}
	native := *large.DeepCopy()
	native.SidecarMode = sondev1.SidecarNative
	for name, spec := range map[string]sondev1.FluentPVCSpec{"a small FluentPVC": small, "a large one": large, "a native one": native} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.cached[0].(*sondev1.FluentPVC).Spec = spec
			call := func(pod *corev1.Pod) (*corev1.Pod, webhook.AdmissionResponse) {
				t.Helper()
				req, got := request(t, pod), pod.DeepCopy()
				resp := w.handler(t).Handle(t.Context(), req)
				if !resp.Allowed {
					t.Fatalf("refused: %v", resp.Result)
				}
				if len(resp.Patches) > 0 {
					got = &corev1.Pod{}
					webhooktest.Patched(t, req, resp, got)
				}
				return got, resp
			}
			pod, _ := call(atTheBounds(t))
			fillIn(pod)
			if _, resp := call(pod); len(resp.Patches) != 0 {
				t.Errorf("%d patches of a Pod that needs no change", len(resp.Patches))
			}
			ref, _ := claim.Parse(webhooktest.Key, "shop", pod.Annotations[sondev1.AnnotationClaim])
			w.live = append(w.live, binding(ref.Claim, "logs"))
			if _, resp := call(pod); len(resp.Patches) == 0 {
				t.Error("a copy keeps the claim")
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "more", Image: "web:1"})
			req := request(t, pod)
			webhooktest.Refused(t, w.handler(t).Handle(t.Context(), req), webhooktest.Invalid, "it has 257 containers")
		})
	}
}

// fillIn does to a Pod with a sidecar what the API server does.
func fillIn(pod *corev1.Pod) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			for k := range c.Env {
				if from := c.Env[k].ValueFrom; from != nil {
					from.FieldRef.APIVersion = "v1"
				}
			}
			if c.Name == "sidecar" {
				c.TerminationMessagePath, c.TerminationMessagePolicy, c.ImagePullPolicy = "/dev/termination-log", corev1.TerminationMessageReadFile, corev1.PullIfNotPresent
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "kube-api-access-abcde", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true})
			}
		}
	}
	for i := range pod.Spec.Volumes {
		if s := pod.Spec.Volumes[i].Secret; s != nil {
			s.DefaultMode = new(int32(0o644))
		}
	}
}

// TestLargePodsOnTheHeap: what a Pod takes of the manager's memory, however small the elements of its lists are.
func TestLargePodsOnTheHeap(t *testing.T) {
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]" }
	mounts := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"name":"v"},`, n), ",") + "]"
	}
	for name, tc := range map[string]struct {
		spec  string
		again bool   // the Pod has the annotation of a claim, which any user can write
		most  uint64 // of the heap, in KiB, if it is not 24 MiB
		want  string // part of the refusal
	}{
		"tolerations":     {spec: `"containers":[{"name":"web"}],"tolerations":` + list(560_000)},
		"terms":           {spec: `"containers":[{"name":"web"}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":` + list(560_000) + `}}}`},
		"mounts":          {spec: `"containers":[{"name":"web","volumeMounts":` + mounts(19_000) + `}]`},
		"many mounts":     {spec: `"containers":[{"name":"web","volumeMounts":` + mounts(120_000) + `}]`, want: "may have 256 KiB"},
		"containers":      {spec: `"containers":` + list(85_000), want: "more than 256 containers"},
		"init containers": {spec: `"containers":[{"name":"web"}],"initContainers":` + list(256), want: "it has 257 containers"},
		"volumes":         {spec: `"containers":[{"name":"web"}],"volumes":` + list(1025), want: "1024 volumes"},

		"again, mounts":               {again: true, spec: `"containers":[{"name":"web","volumeMounts":` + mounts(19_000) + `}]`},
		"again, more mounts":          {again: true, spec: `"containers":[{"name":"web","volumeMounts":` + mounts(21_000) + `}]`, want: "may have 260 KiB"},
		"again, many mounts":          {again: true, spec: `"containers":[{"name":"web","volumeMounts":` + mounts(120_000) + `}]`, want: "may have 512 KiB"},
		"again, containers":           {again: true, spec: `"containers":` + list(85_000), want: "more than 256 containers"},
		"again, many containers":      {again: true, spec: `"containers":` + list(170_000), want: "more than 256 containers"},
		"again, few containers":       {again: true, spec: `"containers":` + list(257), want: "it has 257 containers"},
		"again, of a large FluentPVC": {again: true, most: 52 << 10, spec: `"containers":[` + strings.Repeat(`{"name":"c"},`, 10) + `{"name":"web","volumeMounts":` + mounts(40_000) + `}]`},
		"again, volumes":              {again: true, spec: `"containers":[{"name":"web"}],"volumes":` + list(1026), want: "1024 volumes"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			if tc.most > 0 {
				w.cached[0].(*sondev1.FluentPVC).Spec.CommonEnvs = []corev1.EnvVar{{Name: "TEXT", Value: strings.Repeat("x", 30<<10)}}
			}
			req, h := request(t, webPod()), w.handler(t)
			annotations := `"monitoring.openshift.tpg/fluent-pvc-name":"logs"`
			if tc.again {
				annotations += `,"` + sondev1.AnnotationClaim + `":"logs/c/00"`
			}
			req.Object.Raw = []byte(`{"metadata":{"annotations":{` + annotations + `}},"spec":{` + tc.spec + `}}`)
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
			if taken > max(tc.most, 24<<10) {
				t.Errorf("it takes %d KiB of the heap", taken)
			}
		})
	}
}
