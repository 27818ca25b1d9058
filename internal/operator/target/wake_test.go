package target_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

func TestWakes(t *testing.T) {
	final := capture("shop", "final", "shop", ref("Deployment", "web"))
	final.Status.Phase = sondev1.PhaseCompleted
	c := reader(t, interceptor.Funcs{},
		workload(&appsv1.ReplicaSet{}, "web-1", "Deployment/web"),
		workload(&appsv1.ReplicaSet{}, "bare", ""),
		capture("shop", "web", "", ref("Deployment", "web")),
		capture("hub", "web-from-hub", "shop", ref("Deployment", "web")),
		capture("shop", "other", "", ref("Deployment", "other")),
		capture("shop", "db", "", ref("StatefulSet", "db")),
		capture("shop", "ds", "", ref("DaemonSet", "ds")),
		capture("shop", "pod", "", ref("Pod", "web-1-x")),
		capture("elsewhere", "web-elsewhere", "", ref("Deployment", "web")),
		final,
	)
	wakes := target.Wakes{Kind: kind.PacketCapture, Reader: c}
	cases := map[string]struct {
		wake  func(context.Context, client.Object) []reconcile.Request
		event client.Object
		want  []string
	}{
		"a Deployment's Pod, and a target itself": {wakes.Pod, pod("web-1-x", "ReplicaSet/web-1", corev1.PodRunning), []string{"pod", "web", "web-from-hub"}},
		"its ReplicaSet is not cached yet":        {wakes.Pod, pod("new-x", "ReplicaSet/new", corev1.PodRunning), []string{"other", "web", "web-from-hub"}},
		"a bare ReplicaSet's Pod":                 {wakes.Pod, pod("bare-x", "ReplicaSet/bare", corev1.PodRunning), nil},
		"a StatefulSet's Pod":                     {wakes.Pod, pod("db-0", "StatefulSet/db", corev1.PodRunning), []string{"db"}},
		"a Pod without an owner":                  {wakes.Pod, pod("lonely", "", corev1.PodRunning), nil},
		"a ReplicaSet":                            {wakes.ReplicaSet, workload(&appsv1.ReplicaSet{}, "web-2", "Deployment/web"), []string{"web", "web-from-hub"}},
		"a ReplicaSet without an owner":           {wakes.ReplicaSet, workload(&appsv1.ReplicaSet{}, "web-2", ""), nil},
		"a workload":                              {wakes.Workload("DaemonSet"), workload(&appsv1.DaemonSet{}, "ds", ""), []string{"ds"}},
		"a hub":                                   {wakes.Namespace, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hub"}}, []string{"web-from-hub"}},
		"a target's namespace":                    {wakes.Namespace, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, []string{"db", "ds", "other", "pod", "web", "web-from-hub"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range tc.wake(t.Context(), tc.event) {
				got = append(got, r.Name)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFormerNames checks of which targets a Pod was that is gone, and that an owner whose UID or group is made up does not count.
func TestFormerNames(t *testing.T) {
	ofGroup := func(version string, p *corev1.Pod) *corev1.Pod {
		p.OwnerReferences[0].APIVersion = version
		return p
	}
	c := reader(t, interceptor.Funcs{},
		workload(&appsv1.Deployment{}, "web", ""),
		workload(&appsv1.ReplicaSet{}, "web-1", "Deployment/web"),
		workload(&appsv1.ReplicaSet{}, "bare", ""),
		earlier(workload(&appsv1.ReplicaSet{}, "web-0", "Deployment/web")),
		workload(&appsv1.ReplicaSet{}, "gone-1", "Deployment/gone"),
		workload(&appsv1.StatefulSet{}, "db", ""),
		workload(&appsv1.DaemonSet{}, "ds", ""),
	)
	cases := map[string]struct {
		pod  *corev1.Pod
		want string // besides the Pod
	}{
		"a Deployment's":                         {pod("x", "ReplicaSet/web-1", corev1.PodRunning), "Deployment/web"},
		"its ReplicaSet is gone":                 {pod("x", "ReplicaSet/web-2", corev1.PodRunning), "Deployment/web"},
		"its Deployment is gone":                 {pod("x", "ReplicaSet/gone-1", corev1.PodRunning), "Deployment/gone"},
		"a StatefulSet's":                        {pod("x", "StatefulSet/db", corev1.PodRunning), "StatefulSet/db"},
		"a DaemonSet's":                          {pod("x", "DaemonSet/ds", corev1.PodRunning), "DaemonSet/ds"},
		"its StatefulSet is gone":                {pod("x", "StatefulSet/db-2", corev1.PodRunning), "StatefulSet/db-2"},
		"a bare ReplicaSet's":                    {pod: pod("x", "ReplicaSet/bare", corev1.PodRunning)},
		"no owner":                               {pod: pod("x", "", corev1.PodRunning)},
		"made up: a ReplicaSet":                  {pod: adopted(pod("x", "", corev1.PodRunning), "ReplicaSet", "web-1", "made up")},
		"made up: a StatefulSet":                 {pod: adopted(pod("x", "", corev1.PodRunning), "StatefulSet", "db", "made up")},
		"made up: a DaemonSet":                   {pod: adopted(pod("x", "", corev1.PodRunning), "DaemonSet", "ds", "made up")},
		"made up: the group":                     {pod: ofGroup("example.com/v1", pod("x", "StatefulSet/db", corev1.PodRunning))},
		"made up: the group of a gone one":       {pod: ofGroup("example.com/v1", pod("x", "ReplicaSet/web-2", corev1.PodRunning))},
		"made up: a Deployment without a set":    {pod: pod("x", "Deployment/web", corev1.PodRunning)},
		"of an earlier Deployment of this name":  {pod: adopted(pod("x", "", corev1.PodRunning), "ReplicaSet", "web-0", "ReplicaSet/web-0")},
		"of an earlier StatefulSet of this name": {pod: adopted(pod("x", "", corev1.PodRunning), "StatefulSet", "db", "earlier")},
		"its ReplicaSet was made again":          {leaving(adopted(pod("x", "", corev1.PodRunning), "ReplicaSet", "web-1", "earlier")), "Deployment/web"},
		"of an earlier Deployment, and deleted":  {pod: leaving(adopted(pod("x", "", corev1.PodRunning), "ReplicaSet", "web-0", "ReplicaSet/web-0"))},
		"a Job's":                                {pod: pod("x", "Job/web-1", corev1.PodRunning)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, n := range target.FormerNames(t.Context(), c, "shop", tc.pod) {
				got = append(got, string(n.Kind)+"/"+n.Name)
			}
			want := []string{"Pod/x"}
			if tc.want != "" {
				want = append(want, tc.want)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

// earlier makes an object's owner an earlier one of its name.
func earlier(o client.Object) client.Object {
	owners := o.GetOwnerReferences()
	owners[0].UID = "earlier"
	o.SetOwnerReferences(owners)
	return o
}

func capture(namespace, name, targetNamespace string, ref sondev1.TargetReference) *sondev1.PacketCapture {
	return &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       sondev1.PacketCaptureSpec{TargetNamespace: targetNamespace, TargetRef: &ref},
	}
}
