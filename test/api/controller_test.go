//go:build api

package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/controllers/capture"
	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/podwatch"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// managerUser has the rights of the install's roles and no others.
const managerUser = "test-manager"

// patience is the timeout for results of one or two passes.
const patience = 20 * time.Second

// TestControllers runs the real controllers, with their caches and the generated roles, against a real API server. The
// test plays the Job controller and the kubelet.
func TestControllers(t *testing.T) {
	keepers := startControllers(t)
	t.Run("life", func(t *testing.T) {
		shop := newShop(t)
		pc := shop.capture(t, "life")
		job := awaitJob(t, pc)
		agent := newAgent(t, job)
		eventually(t, "capturing", pc, func() bool { return pc.Status.Phase == sondev1.PhaseCapturing })
		endAgent(t, agent, account.ReasonDuration)
		shop.removePod(t) // the target is gone with its Pod, so the capture ends before its time
		eventually(t, "completed", pc, func() bool { return pc.Status.Phase == sondev1.PhaseCompleted })
		if got := pc.Status.Totals.Packets; got != 3 {
			t.Errorf("%d packets, want 3", got)
		}
		var events corev1.EventList
		eventually(t, "Events", pc, func() bool {
			return admin.List(t.Context(), &events, client.InNamespace(pc.Namespace)) == nil && len(events.Items) >= 3 // Pending, Capturing, Completed
		})
		removed(t, pc)
	})
	t.Run("the right is taken", func(t *testing.T) {
		shop := newShop(t)
		pc := shop.capture(t, "revoked")
		agent := newAgent(t, awaitJob(t, pc))
		eventually(t, "capturing", pc, func() bool { return pc.Status.Phase == sondev1.PhaseCapturing })
		remove(t, shop.binding)
		select {
		case reason := <-keepers:
			if reason != sondev1.ReasonAccessRevoked {
				t.Errorf("the keeper is asked to stop with reason %s, want %s", reason, sondev1.ReasonAccessRevoked)
			}
		case <-time.After(patience):
			t.Fatal("the keeper is not asked to stop, want a request")
		}
		endAgent(t, agent, account.ReasonAccessRevoked)
		eventually(t, "incomplete", pc, func() bool { return pc.Status.Phase == sondev1.PhaseIncomplete })
		if c := apimeta.FindStatusCondition(pc.Status.Conditions, sondev1.ConditionAdmitted); c.Reason != sondev1.ReasonAccessRevoked {
			t.Errorf("condition %+v, want reason %s", c, sondev1.ReasonAccessRevoked)
		}
		removed(t, pc)
	})
	t.Run("a user who changes its metadata all the time", func(t *testing.T) {
		shop := newShop(t)
		pc := shop.capture(t, "busy")
		stop := annotateAllTheTime(t, pc)
		agent := newAgent(t, awaitJob(t, pc))
		eventually(t, "capturing", pc, func() bool { return pc.Status.Phase == sondev1.PhaseCapturing })
		message := "a text <of> \u2028 & \"marks\", \b and é" // the API server compares it as it encodes it
		endAgentWith(t, agent, account.Account{State: account.StateDone, Reason: account.ReasonDuration, EngineMessage: message, Counts: account.Counts{Seen: 3, Packets: 3}})
		eventually(t, "its entry final", pc, func() bool { return len(pc.Status.Pods) == 1 && pc.Status.Pods[0].Phase.Final() })
		shop.removePod(t)
		eventually(t, "ended", pc, func() bool { return pc.Status.Phase.Final() })
		if changes, conflicts := stop(); conflicts == 0 {
			t.Errorf("%d changes, and no patch with the version that was read met one: the test shows nothing", changes)
		}
		removed(t, pc)
	})
	t.Run("no stamp", func(t *testing.T) {
		shop := newShop(t)
		pc := shop.object("unstamped")
		create(t, pc)
		eventually(t, "failed", pc, func() bool { return pc.Status.Phase == sondev1.PhaseFailed })
		if c := apimeta.FindStatusCondition(pc.Status.Conditions, sondev1.ConditionAdmitted); c.Reason != sondev1.ReasonNotAdmitted {
			t.Errorf("condition %+v, want reason %s", c, sondev1.ReasonNotAdmitted)
		}
	})
	t.Run("a trace", func(t *testing.T) {
		shop := newShop(t)
		tr := &sondev1.Trace{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop.namespace, Name: "calls"},
			Spec: sondev1.TraceSpec{
				TargetDeployment: "web", Duration: "60s", RetainFor: "1h", MaxBytes: 1 << 20, FollowPods: new(true),
				Events: []sondev1.TraceGroup{sondev1.TraceFile}, Format: sondev1.TraceNDJSON,
			},
		}
		shop.stamped(t, tr)
		agent := newAgent(t, awaitJob(t, tr))
		eventually(t, "capturing", tr, func() bool { return tr.Status.Phase == sondev1.PhaseCapturing })
		endAgentWith(t, agent, account.Account{
			State: account.StateDone, Reason: account.ReasonEventLimit, Complete: true, Counts: account.Counts{Seen: 5},
			Events: 3, Lost: map[string]int64{"ring": 2}, Files: []account.File{{Name: "web.ndjson", Bytes: 500}},
		})
		shop.removePod(t)
		eventually(t, "completed", tr, func() bool { return tr.Status.Phase == sondev1.PhaseCompleted })
		if got := tr.Status; got.Totals.Events != 3 || got.Totals.Lost != 2 || got.Pods[0].Lost["ring"] != 2 || got.Pods[0].Reason != sondev1.ReasonEventLimit {
			t.Errorf("status %+v", got)
		}
		removed(t, tr)
	})
	t.Run("an expired ResultAccess", func(t *testing.T) {
		shop := newShop(t)
		ra := &sondev1.ResultAccess{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop.namespace, Name: "ra"},
			Spec: sondev1.ResultAccessSpec{
				CaptureRef: sondev1.CaptureReference{Kind: sondev1.CapturePacketCapture, Name: "x"},
				TokenHash:  strings.Repeat("a", 64), ExpirationSeconds: 10,
			},
		}
		create(t, ra)
		gone(t, ra)
	})
}

// annotateAllTheTime changes an annotation of a capture as fast as the API server allows, by several clients. It returns a function
// that ends that, and says how many changes were made, and how many patches with the resourceVersion of a read met one.
func annotateAllTheTime(t *testing.T, pc *sondev1.PacketCapture) (stop func() (changes, conflicts int64)) {
	t.Helper()
	const clients = 4
	ctx, cancel := context.WithCancel(t.Context())
	var made, met atomic.Int64
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			mine := pc.DeepCopy()
			for n := 0; ctx.Err() == nil; n++ {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"mine":"%d"}}}`, n)
				if admin.Patch(ctx, mine, client.RawPatch(types.MergePatchType, patch)) == nil {
					made.Add(1)
				}
			}
		})
	}
	running.Go(func() {
		mine := pc.DeepCopy()
		for ctx.Err() == nil {
			if admin.Get(ctx, client.ObjectKeyFromObject(pc), mine) != nil {
				continue
			}
			patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"labels":{"mine":"%s"}}}`, mine.ResourceVersion, mine.ResourceVersion)
			if apierrors.IsConflict(admin.Patch(ctx, mine, client.RawPatch(types.MergePatchType, patch))) {
				met.Add(1)
			}
		}
	})
	end := func() (int64, int64) {
		cancel()
		running.Wait()
		return made.Load(), met.Load()
	}
	t.Cleanup(func() { end() })
	return end
}

// fakeKeepers replaces the keepers, because this test runs no Pods.
type fakeKeepers chan string

func (k fakeKeepers) Stop(ctx context.Context, _, _, reason string) error {
	select {
	case k <- reason:
	case <-ctx.Done():
	default:
	}
	return nil
}

func (fakeKeepers) Progress(context.Context, string, string) (account.Account, error) {
	return account.Account{}, nil
}

func (fakeKeepers) Recount(context.Context, string, string) (account.Account, error) {
	return account.Account{}, errors.New("this fake keeper has no account")
}

func startControllers(t *testing.T) fakeKeepers {
	t.Helper()
	applyRoles(t)
	own := rest.CopyConfig(config)
	own.Impersonate.UserName = managerUser
	options, err := capture.CacheOptions(operatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	pods := podwatch.New(clock.RealClock{}, time.Time{})
	options.NewInformer = pods.NewInformer
	mgr, err := ctrl.NewManager(own, ctrl.Options{Scheme: scheme, Cache: options, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.New(own, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	stop, err := pause.NewCache(mgr.GetConfig(), operatorNamespace, mgr.GetScheme())
	if err != nil {
		t.Fatal(err)
	}
	gates, err := platformcontroller.NewConfigurationCache(mgr.GetConfig(), mgr.GetScheme())
	if err != nil {
		t.Fatal(err)
	}
	keepers, users := make(fakeKeepers, 1), &capture.KeeperUsers{}
	watchdog := &health.Watchdog{Limit: time.Minute, Clock: clock.RealClock{}}
	sweeper := &sweep.Sweeper{Client: mgr.GetClient(), Live: live, Clock: clock.RealClock{}, Interval: time.Minute, Namespace: operatorNamespace, Parallelism: capture.DefaultParallelism, Watchdog: watchdog}
	expiry := &capture.ResultAccessReconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}, Watchdog: watchdog}
	errs := []error{mgr.Add(stop), mgr.Add(gates), mgr.Add(sweeper), target.IndexFields(t.Context(), mgr.GetFieldIndexer()), expiry.SetupWithManager(mgr)}
	for _, of := range []capture.Kind{capture.PacketCaptures(nil), capture.Traces()} {
		r := &capture.Reconciler{
			Kind:   of,
			Client: mgr.GetClient(), Live: live, PauseConfig: stop, GateConfig: gates, Sweeper: sweeper, Clock: clock.RealClock{}, Keepers: keepers, Users: users,
			Options: agentjob.Options{Namespace: operatorNamespace, Image: "sonde:test", RingBytes: 32 << 20},
			Stamps:  capture.StampKey(stampKey), Key: stampKey, Access: access.NewReviewer(live), Recorder: mgr.GetEventRecorder("sonde"),
			Parallelism:          capture.DefaultParallelism,
			AccessReviewInterval: 2 * time.Second, Watchdog: watchdog, PodWatch: pods,
		}
		errs = append(errs, r.SetupWithManager(mgr))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if gaps := pods.Gaps(); len(gaps) != 1 || !gaps[0].From.IsZero() {
			t.Errorf("gaps of the watch of Pods: %v, want the time before the manager's start", gaps)
		}
	})
	runManager(t, mgr)
	return keepers
}

// runManager runs a manager until the test ends.
func runManager(t *testing.T, mgr ctrl.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
}

// applyRoles binds managerUser to exactly the roles that controller-gen generated, until the test ends.
func applyRoles(t *testing.T) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}
	if err := admin.Create(t.Context(), ns); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: managerUser}}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(part), &kind); err != nil {
			t.Fatal(err)
		}
		if kind.Kind == "ClusterRole" {
			var role rbacv1.ClusterRole
			unmarshal(t, part, &role)
			createUntilEnd(t, &role)
			createUntilEnd(t, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "test-manager"}, Subjects: subjects,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind.Kind, Name: role.Name},
			})
			continue
		}
		var role rbacv1.Role
		unmarshal(t, part, &role)
		createUntilEnd(t, &role)
		createUntilEnd(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test-manager", Namespace: operatorNamespace}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind.Kind, Name: role.Name},
		})
	}
}

func unmarshal(t *testing.T, text string, o any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatal(err)
	}
}

// shop is a namespace with a Deployment of one Pod, and a user who may capture it.
type shop struct {
	namespace, uid string
	pod            *corev1.Pod
	workload       []client.Object
	binding        *rbacv1.RoleBinding
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{namespace: namespace(t, nil)}
	var ns corev1.Namespace
	if err := admin.Get(t.Context(), client.ObjectKey{Name: s.namespace}, &ns); err != nil {
		t.Fatal(err)
	}
	s.uid = string(ns.UID)
	labels := map[string]string{"app": "web"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("web")}
	d := &appsv1.Deployment{ObjectMeta: s.meta("web", nil), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
	create(t, d)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: s.meta("web-rs", metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))),
		Spec:       appsv1.ReplicaSetSpec{Selector: d.Spec.Selector, Template: template},
	}
	create(t, rs)
	s.pod = &corev1.Pod{ObjectMeta: s.meta("web-1", metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))), Spec: podSpec("web")}
	s.pod.Spec.NodeName = "node-a"
	// A Pod on a node that does not exist gets no Job.
	if err := admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.pod.Spec.NodeName}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	create(t, s.pod)
	s.pod.Status.Phase = corev1.PodRunning
	updateStatus(t, s.pod)
	s.workload = []client.Object{d, rs}

	role := &rbacv1.Role{ObjectMeta: s.meta("capture", nil), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{sondev1.VerbCapture, sondev1.VerbTrace}}}}
	create(t, role)
	s.binding = &rbacv1.RoleBinding{
		ObjectMeta: s.meta("capture", nil), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}},
	}
	create(t, s.binding)
	return s
}

func (s *shop) meta(name string, owner *metav1.OwnerReference) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: s.namespace, Name: name}
	if owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return m
}

func podSpec(containers ...string) corev1.PodSpec {
	var spec corev1.PodSpec
	for _, name := range containers {
		spec.Containers = append(spec.Containers, corev1.Container{Name: name, Image: "none"})
	}
	return spec
}

// removePod deletes the Pod and its workload.
func (s *shop) removePod(t *testing.T) {
	t.Helper()
	for _, o := range append(s.workload, s.pod) {
		if err := admin.Delete(t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *shop) object(name string) *sondev1.PacketCapture {
	return &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: sondev1.PacketCaptureSpec{
			TargetDeployment: "web", Duration: "60s", RetainFor: "1h", SnapLength: 262144, MaxBytes: 1 << 20, FollowPods: new(true), Engine: sondev1.EngineAuto,
		},
	}
}

// capture creates a PacketCapture with a stamp like the webhook's.
func (s *shop) capture(t *testing.T, name string) *sondev1.PacketCapture {
	t.Helper()
	pc := s.object(name)
	s.stamped(t, pc)
	return pc
}

// stamped creates a capture with a stamp like the webhook's.
func (s *shop) stamped(t *testing.T, capture sondev1.Capture) {
	t.Helper()
	annotations, err := stamp.Sign(stampKey, capture.GetNamespace(), capture.KindName(), capture.CaptureSpec(),
		stamp.Claim{Requester: access.Requester{Username: "alice"}, TargetNamespaceUID: s.uid, IssuedAt: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	capture.SetAnnotations(annotations)
	create(t, capture)
}

// awaitJob returns the capture's Job, which the API server accepted.
func awaitJob(t *testing.T, capture sondev1.Capture) *batchv1.Job {
	t.Helper()
	var jobs batchv1.JobList
	eventually(t, "a Job", capture, func() bool {
		err := admin.List(t.Context(), &jobs, client.InNamespace(operatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(capture.GetUID())})
		return err == nil && len(jobs.Items) == 1 && capture.CaptureStatus().StartTime != nil
	})
	if got, want := jobs.Items[0].Name, "web-1-"+capture.CaptureStatus().JobID; got != want && !strings.HasPrefix(got, want+"-") {
		t.Errorf("the Job's name is %s, want %s", got, want)
	}
	return &jobs.Items[0]
}

// newAgent plays the Job controller and the kubelet: it creates an agent whose probe is attached.
func newAgent(t *testing.T, job *batchv1.Job) *corev1.Pod {
	t.Helper()
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: job.Namespace, Name: job.Name + "-x", Labels: job.Spec.Template.Labels, Annotations: job.Spec.Template.Annotations,
	}, Spec: podSpec("probe", "keeper")}
	create(t, agent)
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), agent, client.GracePeriodSeconds(0)) })
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	agent.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "probe", State: running, Started: new(true), Ready: true}, {Name: "keeper", State: running, Started: new(true), Ready: true},
	}}
	updateStatus(t, agent)
	return agent
}

func endAgent(t *testing.T, agent *corev1.Pod, reason string) {
	t.Helper()
	endAgentWith(t, agent, account.Account{
		State: account.StateDone, Reason: reason, Complete: true,
		Counts: account.Counts{Seen: 3, Packets: 3, Bytes: 300}, Files: []account.File{{Name: "web.pcapng", Bytes: 500}},
	})
}

func endAgentWith(t *testing.T, agent *corev1.Pod, a account.Account) {
	t.Helper()
	message, err := a.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	agent.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(message), FinishedAt: metav1.Now()}}
	updateStatus(t, agent)
}

// removed deletes a capture and waits until nothing of it is left.
func removed(t *testing.T, pc sondev1.Capture) {
	t.Helper()
	remove(t, pc)
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}} {
			if err := admin.List(ctx, list, client.InNamespace(operatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(pc.GetUID())}); err != nil {
				return false, err
			}
			if apimeta.LenList(list) > 0 {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Errorf("objects of the deleted capture are left: %v", err)
	}
}

// eventually reads o until it satisfies a condition.
func eventually(t *testing.T, what string, o client.Object, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return admin.Get(ctx, client.ObjectKeyFromObject(o), o) == nil && is(), nil
	})
	if err != nil {
		t.Fatalf("wait for %s: %v; the object is %+v", what, err, o)
	}
}

func gone(t *testing.T, o client.Object) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(o), o)), nil
	})
	if err != nil {
		t.Errorf("%T %s still exists: %v", o, o.GetName(), err)
	}
}

func create(t *testing.T, o client.Object) {
	t.Helper()
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// createUntilEnd creates an object and deletes it when the test ends.
func createUntilEnd(t *testing.T, o client.Object) {
	t.Helper()
	create(t, o)
	t.Cleanup(func() { _ = admin.Delete(context.WithoutCancel(t.Context()), o) })
}

func remove(t *testing.T, o client.Object) {
	t.Helper()
	if err := admin.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func updateStatus(t *testing.T, o client.Object) {
	t.Helper()
	if err := admin.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}
