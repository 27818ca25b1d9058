package target_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

func TestResolve(t *testing.T) {
	world := []client.Object{
		workload(&appsv1.Deployment{}, "web", ""),
		workload(&appsv1.ReplicaSet{}, "web-old", "Deployment/web"),
		workload(&appsv1.ReplicaSet{}, "web-new", "Deployment/web"),
		workload(&appsv1.ReplicaSet{}, "web-other", "Deployment/other"),
		pod("web-old-1", "ReplicaSet/web-old", corev1.PodRunning),
		pod("web-new-1", "ReplicaSet/web-new", corev1.PodPending),
		pod("web-new-2", "ReplicaSet/web-new", corev1.PodSucceeded),
		pod("web-new-3", "ReplicaSet/web-new", corev1.PodFailed),
		pod("web-other-1", "ReplicaSet/web-other", corev1.PodRunning),
		unscheduled(pod("web-new-4", "ReplicaSet/web-new", corev1.PodPending)),
		pod("web-bare", "", corev1.PodRunning),
		inNamespace("elsewhere", pod("web-new-5", "ReplicaSet/web-new", corev1.PodRunning)),
		workload(&appsv1.StatefulSet{}, "db", ""),
		pod("db-0", "StatefulSet/db", corev1.PodRunning),
		workload(&appsv1.DaemonSet{}, "agent", ""),
		pod("agent-x", "DaemonSet/agent", corev1.PodRunning),
		workload(&appsv1.Deployment{}, "idle", ""),
		adopted(pod("liar", "", corev1.PodRunning), "StatefulSet", "db", "uid of an earlier db"),
		leaving(pod("web-new-6", "ReplicaSet/web-new", corev1.PodRunning)),
		leaving(pod("web-gone-1", "ReplicaSet/web-gone", corev1.PodRunning)),
		leaving(pod("web-gone-2", "ReplicaSet/web-gone", corev1.PodSucceeded)),
		pod("web-gone-3", "ReplicaSet/web-gone", corev1.PodRunning), // its ReplicaSet is not cached yet
		leaving(adopted(pod("web-again-1", "", corev1.PodRunning), "ReplicaSet", "web-new", "uid of a ReplicaSet that was made again")),
		leaving(adopted(pod("web-other-2", "", corev1.PodRunning), "ReplicaSet", "web-other", "uid of an earlier web-other")),
		leaving(pod("web-api-gone-1", "ReplicaSet/web-api-gone", corev1.PodRunning)),
		leaving(pod("gone-1", "ReplicaSet/gone-5d8f9c", corev1.PodRunning)),
		leaving(pod("cache-0", "StatefulSet/cache", corev1.PodRunning)),
		leaving(pod("db-1", "StatefulSet/db", corev1.PodRunning)),
		leaving(adopted(pod("liar-2", "", corev1.PodRunning), "StatefulSet", "db", "uid of an earlier db")),
	}
	cases := map[string]struct {
		ref        sondev1.TargetReference
		wantFound  bool
		wantPods   []string
		wantFormer []string
	}{
		"deployment during a rollout": {
			ref: ref("Deployment", "web"), wantFound: true, wantPods: []string{"web-new-1", "web-new-6", "web-old-1"}, wantFormer: []string{"web-again-1", "web-gone-1"},
		},
		"stateful set, by UID and not by name": {ref: ref("StatefulSet", "db"), wantFound: true, wantPods: []string{"db-0", "db-1"}},
		"daemon set":                           {ref: ref("DaemonSet", "agent"), wantFound: true, wantPods: []string{"agent-x"}},
		"pod":                                  {ref: ref("Pod", "web-bare"), wantFound: true, wantPods: []string{"web-bare"}},
		"pod that ended":                       {ref: ref("Pod", "web-new-2"), wantFound: true},
		"deployment without Pods":              {ref: ref("Deployment", "idle"), wantFound: true},
		"deployment that is gone":              {ref: ref("Deployment", "gone"), wantFormer: []string{"gone-1"}},
		"stateful set that is gone":            {ref: ref("StatefulSet", "cache"), wantFormer: []string{"cache-0"}},
		"no such deployment":                   {ref: ref("Deployment", "never")},
		"no such pod":                          {ref: ref("Pod", "gone")},
		"a name of another kind":               {ref: ref("StatefulSet", "web")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := target.Resolve(t.Context(), reader(t, interceptor.Funcs{}, world...), "shop", tc.ref)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantPods, names(got.Pods)); diff != "" || got.Found != tc.wantFound {
				t.Errorf("found = %v, want %v; pods (-want +got):\n%s", got.Found, tc.wantFound, diff)
			}
			if diff := cmp.Diff(tc.wantFormer, names(got.Former)); diff != "" {
				t.Errorf("former pods (-want +got):\n%s", diff)
			}
		})
	}
}

func names(pods []*slim.Pod) (names []string) {
	for _, p := range pods {
		names = append(names, p.GetName())
	}
	slices.Sort(names)
	return names
}

func TestResolveErrors(t *testing.T) {
	boom := errors.New("no connection")
	for _, ref := range []sondev1.TargetReference{ref("Deployment", "web"), ref("Pod", "web")} {
		funcs := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return boom
		}}
		if _, err := target.Resolve(t.Context(), reader(t, funcs), "shop", ref); !errors.Is(err, boom) {
			t.Errorf("%s: error = %v, want %v and not an absent target", ref.Kind, err, boom)
		}
	}
	funcs := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return boom }}
	for _, o := range []client.Object{workload(&appsv1.Deployment{}, "web", ""), workload(&appsv1.StatefulSet{}, "db", "")} {
		kind := sondev1.TargetDeployment
		if o.GetName() == "db" {
			kind = sondev1.TargetStatefulSet
		}
		if _, err := target.Resolve(t.Context(), reader(t, funcs, o), "shop", sondev1.TargetReference{Kind: kind, Name: o.GetName()}); !errors.Is(err, boom) {
			t.Errorf("%s: error = %v, want %v", kind, err, boom)
		}
	}
}

func TestSandboxed(t *testing.T) {
	for _, class := range [][2]string{
		{"kata", "kata"},
		{"secure", "kata-qemu"},
		{"gvisor", "runsc"},
		{"x", "io.containerd.runsc.v1"},
		{"fast", "firecracker"},
		{"wasmtime", "wasm"},
		{"gone-kata", ""},
		{"KATA-clh", "x"},
	} {
		if !target.Sandboxed(class[0], class[1]) {
			t.Errorf("class %q with handler %q is not a sandbox, want one", class[0], class[1])
		}
	}
	for _, class := range [][2]string{{"nvidia", "nvidia"}, {"performance-x", "high-performance"}, {"crun", "crun"}, {"runc", ""}} {
		if target.Sandboxed(class[0], class[1]) {
			t.Errorf("class %q with handler %q is a sandbox, want none", class[0], class[1])
		}
	}
}

func ref(kind sondev1.TargetKind, name string) sondev1.TargetReference {
	return sondev1.TargetReference{Kind: kind, Name: name}
}

// workload fills in o; owner is "Kind/name", and UIDs are "Kind/name" too.
func workload(o client.Object, name, owner string) client.Object {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")
	o.SetName(name)
	o.SetNamespace("shop")
	o.SetUID(types.UID(kind + "/" + name))
	own(o, owner)
	return o
}

func own(o client.Object, owner string) {
	if kind, name, ok := strings.Cut(owner, "/"); ok {
		adopt(o, kind, name, types.UID(owner))
	}
}

func adopt(o client.Object, kind, name string, uid types.UID) {
	controller := true
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: uid, Controller: &controller}})
}

func pod(name, owner string, phase corev1.PodPhase) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("Pod/" + name), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "node-a"},
		Status:     corev1.PodStatus{Phase: phase},
	}
	own(p, owner)
	return p
}

func adopted(p *corev1.Pod, kind, name string, uid types.UID) *corev1.Pod {
	adopt(p, kind, name, uid)
	return p
}

// leaving makes a Pod that is being deleted.
func leaving(p *corev1.Pod) *corev1.Pod {
	p.DeletionTimestamp, p.Finalizers = new(metav1.Unix(1772344800, 0)), []string{"example.com/kubelet"}
	return p
}

func unscheduled(p *corev1.Pod) *corev1.Pod { p.Spec.NodeName = ""; return p }

func inNamespace(ns string, p *corev1.Pod) *corev1.Pod { p.Namespace = ns; return p }

func reader(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sondev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithInterceptorFuncs(funcs)
	for _, i := range target.Indexes {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	return b.Build()
}
