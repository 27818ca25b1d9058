package sidecar

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

var update = flag.Bool("update", false, "rewrite testdata/*.yaml")

const claimName = "logs-01234567-abcdefghij"

func testTemplate() *sondev1.FluentPVCSpec {
	return &sondev1.FluentPVCSpec{
		PVCVolumeName: "fluent-pvc", PVCVolumeMountPath: "/mnt/fluent-pvc",
		SidecarContainerTemplate: corev1.Container{
			Name: "sidecar", Image: "fluentd:1", Command: []string{"fluentd"}, Args: []string{"-v"},
			Env:       []corev1.EnvVar{{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
			Ports:     []corev1.ContainerPort{{ContainerPort: 24224}},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				TCPSocket: &corev1.TCPSocketAction{},
			}},
		},
		CommonEnvs:         []corev1.EnvVar{{Name: "FLUENT_PVC_MOUNT_DIR", Value: "/mnt/fluent-pvc"}},
		CommonVolumes:      []corev1.Volume{{Name: "some-secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "some-secret"}}}},
		CommonVolumeMounts: []corev1.VolumeMount{{Name: "some-secret", MountPath: "/path/to/secret", ReadOnly: true}},
	}
}

func native(t *sondev1.FluentPVCSpec) { t.SidecarMode = sondev1.SidecarNative }

func testPod() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "web-", Namespace: "shop", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{sondev1.KeyFluentPVC: "logs"},
		},
		Spec: corev1.PodSpec{
			Volumes:        []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			InitContainers: []corev1.Container{{Name: "migrate", Image: "migrate:1"}},
			Containers: []corev1.Container{
				{Name: "web", Image: "web:1", VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}},
				{Name: "proxy", Image: "proxy:1", Env: []corev1.EnvVar{{Name: "FLUENT_PVC_MOUNT_DIR", Value: "/elsewhere"}}},
			},
		},
	}
}

func injection(claimName string) Injection {
	return Injection{Claim: claimName, Annotation: "logs/" + claimName + "/5167"}
}

func inject(t *testing.T, pod *corev1.Pod, template *sondev1.FluentPVCSpec, in Injection) *corev1.Pod {
	t.Helper()
	after := pod.DeepCopy()
	before := template.DeepCopy()
	if err := Inject(after, template, in); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, template); diff != "" {
		t.Errorf("Inject changed the template:\n%s", diff)
	}
	checkPatch(t, pod, after)
	return after
}

// checkPatch checks that the patch makes the Pod what Inject made it, and leaves every unknown field where it was.
func checkPatch(t *testing.T, before, after *corev1.Pod) {
	t.Helper()
	ops, err := Patch(before, after)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	raw := withUnknown(t, before)
	patched, err := patch.Apply(raw)
	if err != nil {
		t.Fatalf("apply %s: %v", text, err)
	}
	var got corev1.Pod
	if err := json.Unmarshal(patched, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(yamlOf(t, after), yamlOf(t, &got)); diff != "" {
		t.Errorf("patched Pod (-injected +patched):\n%s", diff)
	}
	want, have := unknown(t, raw), unknown(t, patched)
	for _, c := range kept(before, after) {
		if have[c] != want[c] {
			t.Errorf("container %s has the unknown field of %q", c, have[c])
		}
	}
}

// withUnknown marshals a Pod in which every container has a field that our types do not know: its name.
func withUnknown(t *testing.T, pod *corev1.Pod) []byte {
	t.Helper()
	return edit(t, yamlOf(t, pod), func(c map[string]any) { c["ofTomorrow"] = c["name"] })
}

// unknown returns the unknown field of each container, by name.
func unknown(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	got := map[string]any{}
	edit(t, string(raw), func(c map[string]any) { got[c["name"].(string)] = c["ofTomorrow"] })
	return got
}

func edit(t *testing.T, pod string, change func(map[string]any)) []byte {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(pod), &o); err != nil {
		t.Fatal(err)
	}
	spec := o["spec"].(map[string]any)
	for _, field := range []string{"initContainers", "containers"} {
		list, _ := spec[field].([]any)
		for _, c := range list {
			change(c.(map[string]any))
		}
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// kept returns the names of the containers that are in the same list before and after.
func kept(before, after *corev1.Pod) []string {
	var names []string
	for _, lists := range [][2][]corev1.Container{{before.Spec.InitContainers, after.Spec.InitContainers}, {before.Spec.Containers, after.Spec.Containers}} {
		for _, c := range lists[0] {
			if has(lists[1], c.Name) && c.Name != "sidecar" {
				names = append(names, c.Name)
			}
		}
	}
	return names
}

func yamlOf(t *testing.T, o any) string {
	t.Helper()
	b, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestInject(t *testing.T) {
	tests := map[string]struct {
		pod      func(*corev1.Pod)
		template func(*sondev1.FluentPVCSpec)
	}{
		"plain":  {},
		"native": {template: native},
		"native without init containers": {
			pod: func(p *corev1.Pod) { p.Spec.InitContainers = nil }, template: native,
		},
		"native behind the gate": {
			pod: func(p *corev1.Pod) {
				p.Spec.InitContainers = append([]corev1.Container{{Name: gateconfig.ContainerName, Image: "sonde:1"}}, p.Spec.InitContainers...)
			},
			template: native,
		},
		"least": {
			pod: func(p *corev1.Pod) { p.Annotations, p.Spec.Volumes, p.Spec.InitContainers = nil, nil, nil },
			template: func(t *sondev1.FluentPVCSpec) {
				t.CommonEnvs, t.CommonVolumes, t.CommonVolumeMounts = nil, nil, nil
			},
		},
		"own mount of the volume": {
			pod: func(p *corev1.Pod) {
				p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
					{Name: "fluent-pvc", MountPath: "/mnt/fluent-pvc", SubPath: "web"}, {Name: "fluent-pvc", MountPath: "/var/log"},
				}
			},
		},
		"host network": {pod: func(p *corev1.Pod) { p.Spec.HostNetwork = true }},
		"Windows":      {pod: func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod, template := testPod(), testTemplate()
			if tc.pod != nil {
				tc.pod(pod)
			}
			if tc.template != nil {
				tc.template(template)
			}
			in := injection(claimName)
			got := inject(t, pod, template, in)
			golden(t, name, got)

			in.Reinvoked = true
			again := inject(t, got, template, in)
			if diff := cmp.Diff(got, again); diff != "" {
				t.Errorf("re-invocation changed the Pod:\n%s", diff)
			}
			if ops, err := Patch(got, again); err != nil || len(ops) != 0 {
				t.Errorf("re-invocation patches %v, %v", ops, err)
			}
			copied := inject(t, got, template, injection("logs-01234567-zzzzzzzzzz"))
			want := strings.ReplaceAll(yamlOf(t, got), claimName, "logs-01234567-zzzzzzzzzz")
			if diff := cmp.Diff(want, yamlOf(t, copied)); diff != "" {
				t.Errorf("copied Pod (-want +got):\n%s", diff)
			}
		})
	}
}

func golden(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	got := yamlOf(t, pod)
	path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".yaml")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); rewrite with -update:\n%s", path, diff)
	}
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		pod      func(*corev1.Pod)
		template func(*sondev1.FluentPVCSpec)
		want     string
	}{
		"volume": {
			pod:  func(p *corev1.Pod) { p.Spec.Volumes[0].Name = "fluent-pvc" },
			want: `volume name "fluent-pvc" is already in use`,
		},
		"common volume": {
			pod:  func(p *corev1.Pod) { p.Spec.Volumes[0].Name = "some-secret" },
			want: `volume name "some-secret" is already in use`,
		},
		"container":                     {pod: func(p *corev1.Pod) { p.Spec.Containers[0].Name = "sidecar" }, want: `container name "sidecar"`},
		"init container":                {pod: func(p *corev1.Pod) { p.Spec.InitContainers[0].Name = "sidecar" }, want: `container name "sidecar"`},
		"container of a native sidecar": {pod: func(p *corev1.Pod) { p.Spec.Containers[0].Name = "sidecar" }, template: native, want: `container name "sidecar"`},
		"ephemeral container": {
			pod: func(p *corev1.Pod) {
				p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "sidecar"}}}
			},
			want: `container name "sidecar"`,
		},
		"mount path": {
			pod:  func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath = "/mnt/fluent-pvc" },
			want: `container "web" mounts volume "tmp" at /mnt/fluent-pvc, where volume "fluent-pvc" belongs`,
		},
		"mount path with a slash": {
			pod:  func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts[0].MountPath = "/path/to//secret/" },
			want: `mounts volume "tmp" at /path/to//secret/, where volume "some-secret" belongs`,
		},
		"mount path of an init container": {
			pod: func(p *corev1.Pod) {
				p.Spec.InitContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: "/mnt/fluent-pvc"}}
			},
			want: `container "migrate" mounts volume "tmp"`,
		},
		"device": {
			pod: func(p *corev1.Pod) {
				p.Spec.Containers[1].VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: "/mnt/fluent-pvc"}}
			},
			want: `container "proxy" has the device of volume "disk" at /mnt/fluent-pvc`,
		},
		"static Pod": {
			pod:  func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "x" },
			want: "static Pod",
		},
		"ServiceAccount": {
			pod: func(p *corev1.Pod) { p.Spec.ServiceAccountName = "web" },
			template: func(t *sondev1.FluentPVCSpec) {
				t.PVCFinalizerJobSpecTemplate.Template.Spec.ServiceAccountName = "admin"
			},
			want: "run as ServiceAccount admin, and the Pod runs as web",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod, template := testPod(), testTemplate()
			tc.pod(pod)
			if tc.template != nil {
				tc.template(template)
			}
			if err := Inject(pod, template, injection(claimName)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// TestCopies checks what a Pod becomes that carries an annotation which is not for it.
func TestCopies(t *testing.T) {
	original := testTemplate()
	tests := map[string]struct {
		annotation string // by default the original's
		template   func(*sondev1.FluentPVCSpec)
		pod        func(*corev1.Pod)
		earlier    bool // the binding of the original exists
	}{
		"same template":                   {},
		"same template, binding":          {earlier: true},
		"forged annotation":               {annotation: "x"},
		"empty annotation":                {annotation: "-"},
		"the sidecar is tampered with":    {pod: func(p *corev1.Pod) { p.Spec.Containers[2].Command = []string{"true"} }},
		"the volume is tampered with":     {pod: func(p *corev1.Pod) { p.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "others" }},
		"native now":                      {template: native},
		"native now, binding":             {template: native, earlier: true},
		"all names changed, binding":      {template: renamed, earlier: true},
		"other variables, binding":        {template: func(t *sondev1.FluentPVCSpec) { t.CommonEnvs[0].Value = "/changed" }, earlier: true},
		"volume renamed, without binding": {template: func(t *sondev1.FluentPVCSpec) { t.PVCVolumeName = "data" }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod, template, in := inject(t, testPod(), original, injection(claimName)), testTemplate(), injection("logs-01234567-zzzzzzzzzz")
			switch tc.annotation {
			case "":
			case "-":
				pod.Annotations[sondev1.AnnotationClaim] = ""
			default:
				pod.Annotations[sondev1.AnnotationClaim] = tc.annotation
			}
			if tc.template != nil {
				tc.template(template)
			}
			if tc.pod != nil {
				tc.pod(pod)
			}
			if tc.earlier {
				in.Earlier = original
			}
			want := inject(t, testPod(), template, in)
			got := inject(t, pod, template, in)
			if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
				t.Errorf("(-as of a new Pod +got):\n%s", diff)
			}
		})
	}
}

func renamed(t *sondev1.FluentPVCSpec) {
	t.PVCVolumeName, t.PVCVolumeMountPath, t.SidecarContainerTemplate.Name = "data", "/data", "shipper"
	t.CommonEnvs[0].Name, t.CommonVolumes[0].Name, t.CommonVolumeMounts[0].Name = "DATA", "token", "token"
}

// sorted is a Pod whose lists are maps: a copy may have them in another order.
func sorted(p *corev1.Pod) any {
	volumes, containers := map[string]any{}, map[string]any{}
	for _, v := range p.Spec.Volumes {
		volumes[v.Name] = v
	}
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		mounts := map[string]any{}
		for _, m := range c.VolumeMounts {
			mounts[m.MountPath] = m
		}
		c.VolumeMounts = nil
		containers[c.Name] = []any{c, mounts}
	}
	return []any{p.Annotations, volumes, containers}
}

// TestReinvocation checks what stays of the changes that others made between two calls.
func TestReinvocation(t *testing.T) {
	tokenMount := corev1.VolumeMount{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}
	tests := map[string]struct {
		between func(sidecarAnd)
		// want changes the Pod of the first call; nil: the changes are undone.
		want func(sidecarAnd)
	}{
		"mirrored image": {between: func(s sidecarAnd) { s.Image = "mirror/fluentd:1" }, want: func(s sidecarAnd) { s.Image = "mirror/fluentd:1" }},
		"user of an SCC": {between: func(s sidecarAnd) { s.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000660000))} }, want: func(s sidecarAnd) { s.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(1000660000))} }},
		"mount of a token": {
			between: func(s sidecarAnd) { s.VolumeMounts = append(s.VolumeMounts, tokenMount) },
			want:    func(s sidecarAnd) { s.VolumeMounts = append(s.VolumeMounts, tokenMount) },
		},
		"a variable more": {
			between: func(s sidecarAnd) { s.Env = append([]corev1.EnvVar{{Name: "PROXY", Value: "p"}}, s.Env...) },
			want:    func(s sidecarAnd) { s.Env = append([]corev1.EnvVar{{Name: "PROXY", Value: "p"}}, s.Env...) },
		},
		"defaults of the API server": {between: defaults, want: defaults},
		"resources of a LimitRange": {
			between: func(s sidecarAnd) {
				s.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
			},
			want: func(s sidecarAnd) {
				s.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
			},
		},
		"another command":  {between: func(s sidecarAnd) { s.Command, s.Args = []string{"true"}, []string{"-v", "-q"} }},
		"a longer command": {between: func(s sidecarAnd) { s.Command = []string{"fluentd", "--dry-run"} }},
		"another variable": {between: func(s sidecarAnd) { s.Env[0] = corev1.EnvVar{Name: "NODE", Value: "elsewhere"} }},
		"a hook":           {between: func(s sidecarAnd) { s.Lifecycle = &corev1.Lifecycle{} }},
		"no probe":         {between: func(s sidecarAnd) { s.LivenessProbe = nil }},
		"another claim":    {between: func(s sidecarAnd) { s.pod.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = "others" }},
		"read-only claim":  {between: func(s sidecarAnd) { s.pod.Spec.Volumes[1].PersistentVolumeClaim.ReadOnly = true }},
		"another secret":   {between: func(s sidecarAnd) { s.pod.Spec.Volumes[2].Secret.SecretName = "others" }},
		"no mount in web": {between: func(s sidecarAnd) {
			m := &s.pod.Spec.Containers[0].VolumeMounts
			*m = append((*m)[:1:1], (*m)[2:]...)
			*m = append(*m, corev1.VolumeMount{Name: "fluent-pvc", MountPath: "/mnt/fluent-pvc"})
		}, want: func(s sidecarAnd) { m := &s.pod.Spec.Containers[0].VolumeMounts; (*m)[1], (*m)[2] = (*m)[2], (*m)[1] }},
		"a container more": {
			between: func(s sidecarAnd) {
				s.pod.Spec.Containers = append(s.pod.Spec.Containers, corev1.Container{Name: "mesh"})
			},
			want: func(s sidecarAnd) {
				mesh := corev1.Container{Name: "mesh", VolumeMounts: s.VolumeMounts, Env: s.Env[1:]}
				s.pod.Spec.Containers = append(s.pod.Spec.Containers, mesh)
			},
		},
		"the gate": {
			between: func(s sidecarAnd) {
				s.pod.Spec.InitContainers = append([]corev1.Container{{Name: gateconfig.ContainerName}}, s.pod.Spec.InitContainers...)
			},
			want: func(s sidecarAnd) {
				s.pod.Spec.InitContainers = append([]corev1.Container{{Name: gateconfig.ContainerName}}, s.pod.Spec.InitContainers...)
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			template, in := testTemplate(), injection(claimName)
			got := inject(t, testPod(), template, in)
			want := got.DeepCopy()
			tc.between(sidecarAnd{&got.Spec.Containers[2], got})
			if tc.want != nil {
				tc.want(sidecarAnd{&want.Spec.Containers[2], want})
			}
			in.Reinvoked = true
			if diff := cmp.Diff(want, inject(t, got, template, in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// sidecarAnd is a sidecar and its Pod.
type sidecarAnd struct {
	*corev1.Container
	pod *corev1.Pod
}

func defaults(s sidecarAnd) {
	s.TerminationMessagePath, s.TerminationMessagePolicy, s.ImagePullPolicy = "/dev/termination-log", corev1.TerminationMessageReadFile, corev1.PullIfNotPresent
	s.Ports[0].Protocol = corev1.ProtocolTCP
	s.LivenessProbe.PeriodSeconds, s.LivenessProbe.TimeoutSeconds = 10, 1
	s.Env[0].ValueFrom.FieldRef.APIVersion = "v1"
	s.pod.Spec.Volumes[2].Secret.DefaultMode = new(int32(0o644))
}

// TestNativeStaysFirst checks that a native sidecar goes back before the init container that another webhook put before it, and
// stays behind the gate.
func TestNativeStaysFirst(t *testing.T) {
	template, in := testTemplate(), injection(claimName)
	native(template)
	pod := inject(t, testPod(), template, in)
	pod.Spec.InitContainers[0].Image = "mirror/fluentd:1"
	pod.Spec.InitContainers = append([]corev1.Container{{Name: gateconfig.ContainerName}, {Name: "mesh-init"}}, pod.Spec.InitContainers...)
	in.Reinvoked = true
	var names []string
	for _, c := range inject(t, pod, template, in).Spec.InitContainers {
		names = append(names, c.Name+" "+c.Image)
	}
	if diff := cmp.Diff([]string{"sonde-gate ", "sidecar mirror/fluentd:1", "mesh-init ", "migrate migrate:1"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNamed(t *testing.T) {
	tests := map[string]struct {
		annotations, labels map[string]string
		want                string
		wantErr             []string
	}{
		"nothing":            {},
		"annotation":         {annotations: map[string]string{sondev1.KeyFluentPVC: "logs"}, want: "logs"},
		"source annotation":  {annotations: map[string]string{sondev1.KeyFluentPVCSource: "logs"}, want: "logs"},
		"label":              {labels: map[string]string{sondev1.KeyFluentPVC: "logs"}, want: "logs"},
		"source label":       {labels: map[string]string{sondev1.KeyFluentPVCSource: "logs"}, want: "logs"},
		"empty":              {labels: map[string]string{sondev1.KeyFluentPVC: ""}},
		"empty and a name":   {labels: map[string]string{sondev1.KeyFluentPVC: ""}, annotations: map[string]string{sondev1.KeyFluentPVC: "logs"}, want: "logs"},
		"the same name":      {labels: map[string]string{sondev1.KeyFluentPVCSource: "logs"}, annotations: map[string]string{sondev1.KeyFluentPVC: "logs"}, want: "logs"},
		"two annotations":    {annotations: map[string]string{sondev1.KeyFluentPVC: "logs", sondev1.KeyFluentPVCSource: "dumps"}, wantErr: []string{"annotation " + sondev1.KeyFluentPVC + ` says "logs"`, "annotation " + sondev1.KeyFluentPVCSource + ` says "dumps"`, "remove one"}},
		"label and anothers": {labels: map[string]string{sondev1.KeyFluentPVC: "dumps"}, annotations: map[string]string{sondev1.KeyFluentPVC: "logs"}, wantErr: []string{"annotation " + sondev1.KeyFluentPVC, "label " + sondev1.KeyFluentPVC}},
		"long":               {labels: map[string]string{sondev1.KeyFluentPVC: strings.Repeat("a", 5000)}, annotations: map[string]string{sondev1.KeyFluentPVC: strings.Repeat("b", 5000)}, wantErr: []string{"..."}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Named(&metav1.ObjectMeta{Annotations: tc.annotations, Labels: tc.labels})
			if (err != nil) != (tc.wantErr != nil) || got != tc.want {
				t.Fatalf("Named() = %q, %v, want %q", got, err, tc.want)
			}
			for _, want := range tc.wantErr {
				if !strings.Contains(err.Error(), want) || len(err.Error()) > 1024 {
					t.Errorf("error %v, want %q", err, want)
				}
			}
		})
	}
}

func TestCheckServiceAccount(t *testing.T) {
	tests := map[string]struct {
		job, deprecated, pod string
		refused              bool
	}{
		"none":                  {},
		"default":               {job: "default", pod: "web"},
		"the Pod's own":         {job: "web", pod: "web"},
		"none, and the Pod has": {pod: "web"},
		"another":               {job: "admin", pod: "web", refused: true},
		"of a Pod without":      {job: "web", refused: true},
		"by the old field":      {job: "web", deprecated: "admin", pod: "web", refused: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := &testTemplate().PVCFinalizerJobSpecTemplate
			job.Template.Spec.ServiceAccountName, job.Template.Spec.DeprecatedServiceAccount = tc.job, tc.deprecated
			if err := CheckServiceAccount(job, tc.pod); (err != nil) != tc.refused {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestAddVolume(t *testing.T) {
	spec := &corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "fetch"}},
		Containers: []corev1.Container{{
			Name: "upload", Env: []corev1.EnvVar{{Name: "FLUENT_PVC_MOUNT_DIR", Value: "/own"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "fluent-pvc", MountPath: "/mnt/fluent-pvc", ReadOnly: true}},
		}},
	}
	template := testTemplate()
	if err := AddVolume(spec, template, claimName); err != nil {
		t.Fatal(err)
	}
	secret := template.CommonVolumeMounts[0]
	want := &corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "fluent-pvc", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName}}},
			template.CommonVolumes[0],
		},
		InitContainers: []corev1.Container{{
			Name: "fetch", Env: template.CommonEnvs,
			VolumeMounts: []corev1.VolumeMount{{Name: "fluent-pvc", MountPath: "/mnt/fluent-pvc"}, secret},
		}},
		Containers: []corev1.Container{{
			Name: "upload", Env: []corev1.EnvVar{{Name: "FLUENT_PVC_MOUNT_DIR", Value: "/own"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "fluent-pvc", MountPath: "/mnt/fluent-pvc", ReadOnly: true}, secret},
		}},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := AddVolume(spec, template, claimName); err == nil || !strings.Contains(err.Error(), `volume name "fluent-pvc"`) {
		t.Errorf("a second call: %v", err)
	}
}
