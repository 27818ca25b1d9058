// Package newkind shows that a kind can own agent Jobs without being a capture, and without a change to other kinds.
// It defines one, builds its agent Job, wakes it for a pause, and sweeps its leftovers.
package newkind

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

const operatorNamespace = "sonde-system"

// tunnels is the value that describes the kind to the rest of the operator.
var tunnels = kind.Kind{Name: "Tunnel", Resource: "tunnels", App: "tunnel", Verb: "tunnel"}

// Tunnel is the kind. It records nothing and has no result.
type Tunnel struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Deployment string `json:"deployment"`
	Closed     bool   `json:"closed,omitempty"`
}

// KindName implements sondev1.AgentJobOwner.
func (*Tunnel) KindName() string { return tunnels.Name }

// AgentTarget implements sondev1.AgentJobOwner.
func (t *Tunnel) AgentTarget() (string, sondev1.TargetReference) {
	return t.Namespace, sondev1.TargetReference{Kind: sondev1.TargetDeployment, Name: t.Deployment}
}

// Ended implements sondev1.AgentJobOwner.
func (t *Tunnel) Ended() bool { return t.Closed }

// DeepCopyObject implements runtime.Object.
func (t *Tunnel) DeepCopyObject() runtime.Object {
	c := *t
	t.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// TunnelList is a list of the kind.
type TunnelList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Tunnel `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *TunnelList) DeepCopyObject() runtime.Object {
	c := &TunnelList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		t, _ := l.Items[i].DeepCopyObject().(*Tunnel)
		c.Items = append(c.Items, *t)
	}
	return c
}

func tunnel(name string, closed bool) *Tunnel {
	return &Tunnel{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "5ec0d5ec-1111-4222-8333-444455556666"}, Deployment: "web", Closed: closed}
}

// agentJob is what a controller of the kind would build: a Pod of its own in the frame of all agent Jobs.
func agentJob(t *Tunnel) *batchv1.Job {
	options := agentjob.Options{Namespace: operatorNamespace, Image: "sonde:test"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "uid-web-1"}, Spec: corev1.PodSpec{NodeName: "node-a"}}
	return agentjob.ForPod(options, t, agentjob.Agent{
		Name: "web-1-tunnel", Target: pod, Deadline: time.Hour, Kept: time.Minute,
		Spec: agentjob.NodePod(pod.Spec.NodeName, 10, corev1.Container{Name: "opener", Image: options.Image}, corev1.Container{Name: "carrier", Image: options.Image}),
	})
}

func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	before := kind.Owners
	t.Cleanup(func() { kind.Owners = before })
	kind.Owners = append(slices.Clone(before), tunnels)
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batchv1.AddToScheme, sondev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	s.AddKnownTypes(sondev1.GroupVersion, &Tunnel{}, &TunnelList{})
	b := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...)
	for _, i := range target.Indexes {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	return b.Build()
}

// TestAgentJob checks that the Job carries what the sweeper and people find it by, and runs as all agents do.
func TestAgentJob(t *testing.T) {
	newClient(t)
	job := agentJob(tunnel("t", false))
	for key, want := range map[string]string{
		sondev1.LabelKind: "Tunnel", sondev1.LabelUID: "5ec0d5ec-1111-4222-8333-444455556666", sondev1.LabelTargetPodUID: "uid-web-1",
		sondev1.LabelAppName: "tunnel", sondev1.LabelAppInstance: "tunnel-shop-web",
	} {
		if got := job.Spec.Template.Labels[key]; got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	if got := job.Annotations[sondev1.AnnotationOwner]; got != "shop/t" {
		t.Errorf("owner %q, want shop/t", got)
	}
	if spec := job.Spec.Template.Spec; spec.ServiceAccountName != agentjob.ServiceAccount || len(spec.Containers) != 2 {
		t.Errorf("%d containers of ServiceAccount %s, want two of %s", len(spec.Containers), spec.ServiceAccountName, agentjob.ServiceAccount)
	}
}

// TestPause checks that a pause reaches every object that has not ended.
func TestPause(t *testing.T) {
	c := newClient(t, tunnel("open", false), tunnel("closed", true))
	got := pause.Wake(c, tunnels)(t.Context(), nil)
	want := []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: "shop", Name: "open"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
}

// TestSweep checks that the Job stays while its owner exists, and is deleted after it.
func TestSweep(t *testing.T) {
	owner := tunnel("t", false)
	c := newClient(t, owner)
	if err := c.Create(t.Context(), agentJob(owner)); err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	sweeper := &sweep.Sweeper{
		Client: c, Live: c, Clock: clock, Namespace: operatorNamespace, Watchdog: &health.Watchdog{Limit: time.Minute, Clock: clock},
	}
	for _, want := range []int{1, 0} {
		if err := sweeper.All(t.Context()); err != nil {
			t.Fatal(err)
		}
		var jobs batchv1.JobList
		if err := c.List(t.Context(), &jobs); err != nil || len(jobs.Items) != want {
			t.Errorf("%d Jobs (%v), want %d", len(jobs.Items), err, want)
		}
		if err := client.IgnoreNotFound(c.Delete(t.Context(), owner)); err != nil {
			t.Fatal(err)
		}
	}
}
