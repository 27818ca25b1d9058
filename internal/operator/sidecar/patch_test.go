package sidecar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// forgedClaim is the claim that the annotation of a forged Pod names.
const forgedClaim = "c"

// TestForgedPodsMakeSmallPatches: by a forged annotation, a user makes Inject remove as many elements of a Pod as they like. The API
// server copies the list for each operation.
func TestForgedPodsMakeSmallPatches(t *testing.T) {
	const many = 20_000
	stale := func(i int) corev1.VolumeMount {
		return corev1.VolumeMount{Name: "stale", MountPath: fmt.Sprint("/", i)}
	}
	own := func(i int) corev1.VolumeMount { return corev1.VolumeMount{Name: "tmp", MountPath: fmt.Sprint("/", i)} }
	mounts := func(at func(i int) corev1.VolumeMount) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for i := range many {
				p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, at(i))
			}
		}
	}
	either := func(odd, even func(i int) corev1.VolumeMount) func(i int) corev1.VolumeMount {
		return func(i int) corev1.VolumeMount {
			if i%2 == 1 {
				return odd(i)
			}
			return even(i)
		}
	}
	for name, change := range map[string]func(*corev1.Pod){
		"few mounts": func(p *corev1.Pod) {
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{stale(1), own(2), stale(3)}
		},
		"mounts":                  mounts(stale),
		"mounts at one path":      mounts(func(int) corev1.VolumeMount { return stale(1) }),
		"every other mount":       mounts(either(stale, own)),
		"every other at one path": mounts(either(func(int) corev1.VolumeMount { return stale(1) }, func(int) corev1.VolumeMount { return own(1) })),
		"one of the mounts is shifted": func(p *corev1.Pod) {
			mounts(own)(p)
			p.Spec.Containers[0].VolumeMounts[0] = stale(1)
		},
		"volumes": func(p *corev1.Pod) {
			for i := range 10_000 {
				v := *p.Spec.Volumes[1].DeepCopy()
				v.Name = fmt.Sprint("stale-", i)
				p.Spec.Volumes = append(p.Spec.Volumes, v)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod()
			pod.Annotations[sondev1.AnnotationClaim] = "x/" + forgedClaim + "/y"
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "stale", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: forgedClaim},
			}})
			change(pod)
			before, err := json.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			after := pod.DeepCopy()
			if err := Inject(after, testTemplate(), injection(claimName)); err != nil {
				t.Fatal(err)
			}
			ops, err := Patch(pod, after)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(ops)
			if err != nil {
				t.Fatal(err)
			}
			if len(ops) > 100 || len(text) > len(before)+64<<10 {
				t.Errorf("%d operations of %d bytes for a Pod of %d bytes", len(ops), len(text), len(before))
			}
			patch, err := jsonpatch.DecodePatch(text)
			if err != nil {
				t.Fatal(err)
			}
			patched, err := patch.Apply(before)
			if err != nil {
				t.Fatal(err)
			}
			var got corev1.Pod
			if err := json.Unmarshal(patched, &got); err != nil {
				t.Fatal(err)
			}
			if !equality.Semantic.DeepEqual(after, &got) { // a diff of so many takes a minute
				t.Error("the patched Pod differs from the injected one")
			}
			if slices.ContainsFunc(got.Spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "stale") }) {
				t.Error("the Pod keeps a volume of the claim that its annotation names")
			}
		})
	}
}

// TestPatchesOfLists compares lists before and after with what their patch makes, with keys that come several times.
func TestPatchesOfLists(t *testing.T) {
	for _, tc := range [][2]string{
		{"abc", "abc"},
		{"abc", "ac"},
		{"abc", "cab"},
		{"aab", "ab"},
		{"aab", "ba"},
		{"", "a"},
		{"a", ""},
		{"abab", "bb"},
		{strings.Repeat("ab", 50), strings.Repeat("b", 50)},
		{strings.Repeat("ab", 50), strings.Repeat("ba", 50)},
		{"a" + strings.Repeat("x", 50), strings.Repeat("x", 50)},
		{strings.Repeat("a", maxEdits) + "b", "b"},
		{strings.Repeat("a", maxEdits+1) + "b", "b"},
		{"b" + strings.Repeat("a", maxEdits), "b"},
	} {
		before, after := testPod(), testPod()
		env := func(s string) (list []corev1.EnvVar) {
			for _, c := range s {
				list = append(list, corev1.EnvVar{Name: string(c), Value: "v"})
			}
			return list
		}
		before.Spec.Containers[0].Env, after.Spec.Containers[0].Env = env(tc[0]), env(tc[1])
		checkPatch(t, before, after)
		ops, err := Patch(before, after)
		if err != nil || len(ops) > 2*maxEdits+1 {
			t.Errorf("from %s to %s: %d operations, %v", tc[0], tc[1], len(ops), err)
		}
	}
}

// TestTooManyContainers: each container gets the template's mounts and variables. A gate and the sidecar of an earlier call do not count.
func TestTooManyContainers(t *testing.T) {
	const tooMany = "it has 257 containers, and a Pod with a FluentPVC may have 256"
	for name, tc := range map[string]struct {
		containers int
		sidecar    bool // one of the containers has its name
		gate       bool // of a Trace, besides
		annotation string
		want       string
	}{
		"256":                        {containers: MaxContainers},
		"257":                        {containers: MaxContainers + 1, want: tooMany},
		"256 and a gate":             {containers: MaxContainers, gate: true},
		"257 and a gate":             {containers: MaxContainers + 1, gate: true, want: tooMany},
		"257 of a first call":        {containers: MaxContainers + 1, sidecar: true, want: tooMany},
		"256 and the sidecar":        {containers: MaxContainers + 1, sidecar: true, annotation: "logs/" + claimName + "/5167"},
		"256 and a copied sidecar":   {containers: MaxContainers + 1, sidecar: true, annotation: "forged"},
		"257 and the sidecar":        {containers: MaxContainers + 2, sidecar: true, annotation: "forged", want: tooMany},
		"257 and a forged signature": {containers: MaxContainers + 1, annotation: "forged", want: tooMany},
	} {
		t.Run(name, func(t *testing.T) {
			pod, in := testPod(), injection(claimName)
			if tc.annotation != "" {
				pod.Annotations[sondev1.AnnotationClaim] = tc.annotation
			}
			in.Reinvoked = in.Annotation == tc.annotation
			if tc.sidecar {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar"})
			}
			for i := len(pod.Spec.Containers) + len(pod.Spec.InitContainers); i < tc.containers; i++ {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: fmt.Sprint("c", i)})
			}
			if tc.gate {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: gateconfig.ContainerName})
			}
			if err := Inject(pod, testTemplate(), in); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
