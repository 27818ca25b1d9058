package gate

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

func testOptions() Options {
	return Options{
		Config: gateconfig.Config{Timeout: 30 * time.Second, OnTimeout: gateconfig.Proceed, Until: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
		Image:  "sonde:test", TraceNamespace: "shop", TraceName: "tr", TraceUID: "c0ffee00-1111-4222-8333-444455556666",
	}
}

func testPod() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Namespace: "shop", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
}

func limits(memory string) corev1.ResourceRequirements {
	l := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse(memory), "example.com/gpu": resource.MustParse("1")}
	return corev1.ResourceRequirements{Limits: l, Requests: l}
}

// pods are Pods whose gates differ.
var pods = map[string]func(*corev1.Pod){
	"plain": func(*corev1.Pod) {},
	"own init containers": func(p *corev1.Pod) {
		p.Annotations = map[string]string{"a/b": "c"}
		p.Spec.InitContainers = []corev1.Container{{Name: "migrate", Image: "migrate:1"}, {Name: "warm", Image: "warm:1"}}
	},
	"native sidecar": func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "proxy", Image: "proxy:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	},
	"shareProcessNamespace": func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = new(true) },
	"hostPID":               func(p *corev1.Pod) { p.Spec.HostPID = true },
	"runAsNonRoot": func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), FSGroup: new(int64(1000)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
	},
	"root of the whole Pod": func(p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(0))} },
	"read-only root": func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
			RunAsNonRoot: new(true), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
	},
	"guaranteed": func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources = limits("8Mi")
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "log", Image: "log:1", Resources: limits("4Mi")})
	},
	"trace required": func(p *corev1.Pod) { p.Labels[sondev1.LabelTraceRequired] = "true" },
	"already gated": func(p *corev1.Pod) { // as copied from a Pod of another Trace, by another version
		p.Annotations = map[string]string{sondev1.AnnotationGatedBy: "shop/old", sondev1.AnnotationGatedByUID: "old"}
		p.Spec.InitContainers = []corev1.Container{
			{Name: "migrate", Image: "migrate:1"}, {Name: gateconfig.ContainerName, Image: "sonde:old", Args: []string{"gate"}},
		}
	},
}

// apply applies a patch to a Pod, as the API server does.
func apply(t *testing.T, pod *corev1.Pod, ops []Operation) *corev1.Pod {
	t.Helper()
	before, err := json.Marshal(pod)
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
	after, err := patch.Apply(before)
	if err != nil {
		t.Fatalf("apply %s: %v", text, err)
	}
	var patched corev1.Pod
	if err := json.Unmarshal(after, &patched); err != nil {
		t.Fatal(err)
	}
	return &patched
}

func inject(t *testing.T, pod *corev1.Pod, o Options) *corev1.Pod {
	t.Helper()
	ops, err := Inject(pod, o.ForPod(pod))
	if err != nil {
		t.Fatal(err)
	}
	return apply(t, pod, ops)
}

func TestInject(t *testing.T) {
	for name, change := range pods {
		t.Run(name, func(t *testing.T) {
			pod := testPod()
			change(pod)
			before := pod.DeepCopy()
			got := inject(t, pod, testOptions())
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("Inject changed its argument:\n%s", diff)
			}
			golden(t, name, got)
			if diff := cmp.Diff(got, inject(t, before, testOptions())); diff != "" {
				t.Errorf("second call for the same Pod:\n%s", diff)
			}
			if ops, err := Inject(got, testOptions().ForPod(got)); err != nil || len(ops) > 0 {
				t.Errorf("call for the patched Pod: %v, %v", ops, err)
			}
		})
	}
}

// TestManyGatesMakeASmallPatch: the API server copies the list for each operation of a patch.
func TestManyGatesMakeASmallPatch(t *testing.T) {
	for _, gates := range []int{1, maxRemoved, maxRemoved + 1, 20_000} {
		pod := testPod()
		for range gates {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: gateconfig.ContainerName})
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "migrate"})
		ops, err := Inject(pod, testOptions().ForPod(pod))
		if err != nil || len(ops) > maxRemoved+2 {
			t.Fatalf("%d gates: %d operations, %v", gates, len(ops), err)
		}
		got := apply(t, pod, ops).Spec.InitContainers
		if len(got) != 2 || got[0].Name != gateconfig.ContainerName || len(got[0].Args) == 0 || got[1].Name != "migrate" {
			t.Errorf("%d gates become %+v", gates, got)
		}
	}
}

func golden(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	got, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".yaml")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got); rewrite with -update:\n%s", path, diff)
	}
}

// TestGateAsksForLittle checks the rules of pod-security "restricted" for containers, which an update of the golden files must
// not change.
func TestGateAsksForLittle(t *testing.T) {
	for name, change := range pods {
		t.Run(name, func(t *testing.T) {
			pod := testPod()
			change(pod)
			c := inject(t, pod, testOptions()).Spec.InitContainers[0]
			sc := c.SecurityContext
			if c.Name != gateconfig.ContainerName || !*sc.RunAsNonRoot || *sc.AllowPrivilegeEscalation || !*sc.ReadOnlyRootFilesystem ||
				sc.Privileged != nil || sc.Capabilities.Add != nil || !cmp.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s has %v", c.Name, sc)
			}
			if sc.RunAsUser != nil && *sc.RunAsUser == 0 {
				t.Error("the gate runs as root")
			}
			if len(c.Env)+len(c.EnvFrom)+len(c.VolumeMounts)+len(c.VolumeDevices)+len(c.Ports) > 0 || c.RestartPolicy != nil {
				t.Errorf("the gate has more than it needs: %v", c)
			}
		})
	}
}

// TestReinvocation checks a second call of the webhook after other webhooks changed the Pod.
func TestReinvocation(t *testing.T) {
	gateOf := func(p *corev1.Pod) *corev1.Container { return &p.Spec.InitContainers[0] }
	tests := map[string]struct {
		change   func(*corev1.Pod)
		wantSame bool // nothing to do
		wantKept bool // the changes to the gate stay
	}{
		"nothing":     {change: func(*corev1.Pod) {}, wantSame: true, wantKept: true},
		"user of SCC": {change: func(p *corev1.Pod) { gateOf(p).SecurityContext.RunAsUser = new(int64(1000660000)) }, wantSame: true, wantKept: true},
		"token": {change: func(p *corev1.Pod) {
			gateOf(p).VolumeMounts = []corev1.VolumeMount{{Name: "kube-api-access-x", MountPath: "/x"}}
		}, wantSame: true, wantKept: true},
		"mirror":      {change: func(p *corev1.Pod) { gateOf(p).Image = "mirror.example/sonde:test" }, wantSame: true, wantKept: true},
		"limit range": {change: func(p *corev1.Pod) { gateOf(p).Resources = limits("64Mi") }, wantSame: true, wantKept: true},
		"own sidecar": {change: func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy"}) }, wantSame: true, wantKept: true},
		"moved": {change: func(p *corev1.Pod) {
			p.Spec.InitContainers = append([]corev1.Container{{Name: "istio-init"}}, p.Spec.InitContainers...)
		}, wantKept: true},
		"twice":        {change: func(p *corev1.Pod) { p.Spec.InitContainers = append(p.Spec.InitContainers, *gateOf(p)) }, wantKept: true},
		"gone":         {change: func(p *corev1.Pod) { p.Spec.InitContainers = nil }},
		"other wait":   {change: func(p *corev1.Pod) { gateOf(p).Args[2] = "1h" }},
		"other binary": {change: func(p *corev1.Pod) { gateOf(p).Command = []string{"/bin/true"} }},
		"sidecar":      {change: func(p *corev1.Pod) { gateOf(p).RestartPolicy = new(corev1.ContainerRestartPolicyAlways) }},
		"privileged":   {change: func(p *corev1.Pod) { gateOf(p).SecurityContext.Privileged = new(true) }},
		"other trace":  {change: func(p *corev1.Pod) { p.Annotations[sondev1.AnnotationGatedByUID] = "another" }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := inject(t, testPod(), testOptions())
			made := *gateOf(pod.DeepCopy())
			tc.change(pod)
			ops, err := Inject(pod, testOptions())
			if err != nil || (len(ops) == 0) != tc.wantSame {
				t.Fatalf("%v, %v", ops, err)
			}
			if tc.wantKept {
				for _, c := range pod.Spec.InitContainers {
					if isGate(c) {
						made = c
					}
				}
			}
			again := apply(t, pod, ops)
			if diff := cmp.Diff(made, again.Spec.InitContainers[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := len(again.Spec.InitContainers); name != "moved" && n != 1 || n > 2 {
				t.Errorf("%d init containers", n)
			}
			if ops, err := Inject(again, testOptions()); len(ops) > 0 || err != nil {
				t.Errorf("third call: %v, %v", ops, err)
			}
		})
	}
}

func TestInjectRefuses(t *testing.T) {
	tests := map[string]struct {
		pod     func(*corev1.Pod)
		options func(*Options)
		want    string
	}{
		"Windows":               {pod: func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, want: Windows},
		"Windows by selector":   {pod: func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "windows"} }, want: Windows},
		"static Pod":            {pod: func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, want: Mirror},
		"no image":              {options: func(o *Options) { o.Image = "" }, want: "needs an image"},
		"no trace":              {options: func(o *Options) { o.TraceUID = "" }, want: "UID of its trace"},
		"required without end":  {pod: func(p *corev1.Pod) { p.Labels[sondev1.LabelTraceRequired] = "true" }, options: func(o *Options) { o.Until = time.Time{} }, want: "needs until"},
		"no time":               {options: func(o *Options) { o.Timeout = 0 }, want: "timeout"},
		"neither Proceed, Fail": {options: func(o *Options) { o.OnTimeout = "" }, want: "on-timeout"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod, o := testPod(), testOptions()
			if tc.pod != nil {
				tc.pod(pod)
			}
			if tc.options != nil {
				tc.options(&o)
			}
			if ops, err := Inject(pod, o.ForPod(pod)); err == nil || !strings.Contains(err.Error(), tc.want) || ops != nil {
				t.Errorf("%v, %v; want %q", ops, err, tc.want)
			}
		})
	}
}

func TestProtected(t *testing.T) {
	for namespace, want := range map[string]bool{
		"shop": false, "default": false, "my-kube-system": false, "openshifty": false, "kubernetes": false,
		"sonde-system": true, "kube-system": true, "kube-node-lease": true, "openshift": true, "openshift-dns": true,
	} {
		if got := Protected(namespace, "sonde-system"); got != want {
			t.Errorf("Protected(%s) = %v", namespace, got)
		}
	}
}
