package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/operator/podwatch"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

const (
	operatorNamespace = "sonde-system"
	captureUID        = types.UID("c0ffee00-1111-4222-8333-444455556666")
)

// dawn is the start of every test, in whole seconds like the API server's times.
var dawn = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a fake cluster, and fakes of everything else that the reconciler calls.
type world struct {
	t      *testing.T
	client client.Client
	clock  *clocktesting.FakeClock
	r      *Reconciler
	key    types.NamespacedName
	events *events.FakeRecorder

	claim     stamp.Claim
	stampErr  error
	deny      map[string]string // namespace, or "nodes", to the reason of a refusal
	accessErr error
	reviews   int
	recent    int
	filter    map[pcapfilter.LinkType]error
	recounts  int             // calls of keepers to count
	recounted account.Account // what they answer
	progress  account.Account // of running probes
	keeperErr error
	stopping  sync.Mutex
	stops     []string
	// createErr, getErr and listErr fail requests; writes counts the successful writes.
	createErr func(client.Object) error
	listErr   func(client.ObjectList) error
	patchErr  error
	writes    []string
	writing   sync.Mutex // for concurrent writes
	// nodesAhead is how wrong the nodes' clocks are.
	nodesAhead time.Duration
	// stale hides Jobs from the cache.
	stale bool
	// gateless are target namespaces that the webhook configuration for gates does not have.
	gateless []string
	// hidden is a Pod that the cache does not have.
	hidden string
	// ghosts are the only nodes that do not exist when Jobs are created.
	ghosts []string
	// nodeReads counts the reads of nodes before Jobs are created.
	nodeReads map[string]int
	indexed   indexedValues
}

func newWorld(t *testing.T, pc client.Object, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(dawn), key: client.ObjectKeyFromObject(pc), events: events.NewFakeRecorder(10000),
		claim: stamp.Claim{Requester: access.Requester{Username: "alice"}, TargetNamespaceUID: "uid-shop"},
		deny:  map[string]string{}, filter: map[pcapfilter.LinkType]error{}, nodeReads: map[string]int{},
		indexed: indexedValues{scheme: testScheme(t), had: map[indexedValue]bool{}},
	}
	objects = append(objects, pc, namespace("shop", nil), namespace("hub", map[string]string{sondev1.LabelHub: "true"}), namespace("private", nil))
	for _, o := range objects {
		w.indexed.add(o)
	}
	b := fake.NewClientBuilder().WithScheme(w.indexed.scheme).WithObjects(objects...).
		WithIndex(&corev1.Event{}, eventObjectUID, func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).
		WithIndex(&corev1.Event{}, eventReason, func(o client.Object) []string { return []string{o.(*corev1.Event).Reason} }).
		WithInterceptorFuncs(w.recordWrites(w.funcs()))
	for _, k := range kind.Captures {
		b = b.WithStatusSubresource(k.New())
	}
	for _, i := range target.Indexes {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	w.client = b.Build()
	live := interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{}) // sees what a stale cache does not
	watchdog := &health.Watchdog{Limit: time.Hour, Clock: w.clock}
	w.r = &Reconciler{
		Kind:   PacketCaptures(w),
		Client: interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{Get: cachedGet, List: w.cachedList}), Live: live, PauseConfig: live, GateConfig: gateConfig{w},
		Options: agentjob.Options{Namespace: operatorNamespace, Image: "sonde:test", RingBytes: 32 << 20},
		Stamps:  w, Key: scheduleKey, Access: w, recent: recentReviews{w}, throttle: newThrottle(w.clock), departed: &departedPods{}, Keepers: w, Users: &KeeperUsers{}, Recorder: w.events, Clock: w.clock,
		Sweeper:              &sweep.Sweeper{Client: w.client, Live: live, Clock: w.clock, Interval: time.Minute, Namespace: operatorNamespace, Parallelism: DefaultParallelism, Watchdog: watchdog},
		Parallelism:          DefaultParallelism,
		AccessReviewInterval: DefaultAccessReviewInterval, Watchdog: watchdog, PodWatch: podwatch.New(w.clock, dawn),
	}
	if _, ok := pc.(*sondev1.Trace); ok {
		w.r.Kind = Traces()
	}
	return w
}

func (w *world) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if metadata, ok := o.(*metav1.PartialObjectMetadata); ok && metadata.Kind == "Node" {
				return w.getNode(key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.writing.Lock()
			defer w.writing.Unlock()
			if w.createErr != nil {
				if err := w.createErr(o); err != nil {
					return err
				}
			}
			w.writes = append(w.writes, fmt.Sprintf("create %T %s", o, o.GetName()))
			created, uid := cmp.Or(o.GetCreationTimestamp(), metav1.NewTime(w.clock.Now())), cmp.Or(o.GetUID(), types.UID("uid-of-"+o.GetName()))
			if err := c.Create(ctx, o, opts...); err != nil {
				return err
			}
			// The fake client knows neither UIDs nor this clock.
			o.SetCreationTimestamp(created)
			o.SetUID(uid)
			return c.Update(ctx, o)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			w.writing.Lock()
			defer w.writing.Unlock()
			w.writes = append(w.writes, "delete "+o.GetName())
			return c.Delete(ctx, o, opts...)
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, o, in client.Object, opts ...client.SubResourceCreateOption) error {
			w.writing.Lock()
			defer w.writing.Unlock()
			w.writes = append(w.writes, sub+" "+o.GetName())
			return c.SubResource(sub).Create(ctx, o, in, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if w.patchErr != nil {
				return w.patchErr
			}
			w.writes = append(w.writes, "patch "+sub)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}
}

// getNode reads whether a node exists.
func (w *world) getNode(name string) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.nodeReads[name]++
	if slices.Contains(w.ghosts, name) {
		return apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	return nil
}

func (w *world) cachedList(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	if w.listErr != nil {
		if err := w.listErr(list); err != nil {
			return err
		}
	}
	switch list.(type) {
	case *batchv1.JobList, *metav1.PartialObjectMetadataList:
		if w.stale && list.GetObjectKind().GroupVersionKind().Kind != "ReplicaSetList" {
			return nil
		}
	}
	if w.indexed.foundNone(list, opts) {
		return nil
	}
	err := c.List(ctx, list, opts...)
	if pods, ok := list.(*corev1.PodList); ok && w.hidden != "" {
		pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Name == w.hidden })
	}
	return err
}

// cachedGet reads captures as the manager's cache holds them: those that have ended have few fields.
func cachedGet(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := c.Get(ctx, key, o, opts...); err != nil {
		return err
	}
	_, err := target.Strip(o)
	return err
}

// Verify implements Stamps.
func (w *world) Verify(sondev1.Capture) (stamp.Claim, error) { return w.claim, w.stampErr }

// StoppedBy implements Stamps.
func (w *world) StoppedBy(capture sondev1.Capture) string {
	return capture.GetAnnotations()[sondev1.AnnotationStoppedBy]
}

// ReviewPods implements access.Reviews.
func (w *world) ReviewPods(_ context.Context, verb string, _ access.Requester, namespace string) (access.Decision, error) {
	w.reviews++
	if !isVerb(verb) {
		return access.Decision{Reason: "no kind's verb: " + verb}, w.accessErr
	}
	return access.Decision{Allowed: w.deny[namespace] == "", Reason: w.deny[namespace]}, w.accessErr
}

// ReviewNodes implements access.Reviews.
func (w *world) ReviewNodes(_ context.Context, verb string, _ access.Requester) (access.Decision, error) {
	w.reviews++
	if !isVerb(verb) {
		return access.Decision{Reason: "no kind's verb: " + verb}, w.accessErr
	}
	return access.Decision{Allowed: w.deny["nodes"] == "", Reason: w.deny["nodes"]}, w.accessErr
}

func isVerb(verb string) bool {
	return slices.ContainsFunc(kind.Captures, func(k kind.Capture) bool { return k.Verb == verb })
}

// recentReviews are the reviews that may be cached. They are counted separately.
type recentReviews struct{ *world }

func (r recentReviews) ReviewPods(ctx context.Context, verb string, who access.Requester, namespace string) (access.Decision, error) {
	r.recent++
	r.reviews--
	return r.world.ReviewPods(ctx, verb, who, namespace)
}

// Compile implements Filters.
func (w *world) Compile(_ context.Context, _, _ string, link pcapfilter.LinkType, snapLen int) (bpfprog.Program, error) {
	if err := w.filter[link]; err != nil {
		return nil, err
	}
	return bpfprog.Program{{Code: 6, K: uint32(snapLen)}}, nil
}

// Stop implements Keepers. Calls are concurrent.
func (w *world) Stop(_ context.Context, podIP, secret, reason string) error {
	if secret == "" || podIP == "" {
		return errors.New("no secret or no address")
	}
	w.stopping.Lock()
	defer w.stopping.Unlock()
	w.stops = append(w.stops, podIP+" "+reason)
	return w.keeperErr
}

// Recount implements Keepers.
func (w *world) Recount(_ context.Context, podIP, secret string) (account.Account, error) {
	if secret == "" || podIP == "" {
		return account.Account{}, errors.New("no secret or no address")
	}
	w.recounts++
	return w.recounted, w.keeperErr
}

// Progress implements Keepers.
func (w *world) Progress(context.Context, string, string) (account.Account, error) {
	return w.progress, w.keeperErr
}

// pass reconciles once.
func (w *world) pass() ctrl.Result {
	w.t.Helper()
	res, err := w.r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: w.key})
	if err != nil {
		w.t.Fatalf("Reconcile: %v", err)
	}
	return res
}

// settle reconciles until a pass writes nothing, and fails if that takes too many.
func (w *world) settle() ctrl.Result {
	w.t.Helper()
	for range 5 {
		w.writes = nil
		if res := w.pass(); len(w.writes) == 0 {
			return res
		}
	}
	w.t.Fatalf("passes over an unchanged cluster still write: %v", w.writes)
	return ctrl.Result{}
}

func (w *world) capture() *sondev1.PacketCapture {
	w.t.Helper()
	var pc sondev1.PacketCapture
	w.get(w.key, &pc)
	return &pc
}

func (w *world) get(key types.NamespacedName, o client.Object) {
	w.t.Helper()
	if err := w.client.Get(w.t.Context(), key, o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) jobs() []batchv1.Job {
	w.t.Helper()
	var list batchv1.JobList
	if err := w.client.List(w.t.Context(), &list, client.InNamespace(operatorNamespace)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

func (w *world) jobNames() []string {
	w.t.Helper()
	var names []string
	for _, j := range w.jobs() {
		names = append(names, j.Name)
	}
	slices.Sort(names)
	return names
}

func (w *world) add(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if err := w.client.Create(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

// update writes an object with its status.
func (w *world) update(o client.Object) {
	w.t.Helper()
	whole := o.DeepCopyObject().(client.Object)
	if err := w.client.Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
	whole.SetResourceVersion(o.GetResourceVersion())
	if err := w.client.Status().Update(w.t.Context(), whole); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(o client.Object) {
	w.t.Helper()
	if err := w.client.Delete(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// agent creates or changes the Pod of each Job, like the Job controller and the kubelet.
func (w *world) agents(change func(*corev1.Pod)) {
	w.t.Helper()
	for _, j := range w.jobs() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: j.Name + "-x", Namespace: operatorNamespace}}
		err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(pod), pod)
		if err != nil {
			pod.Labels, pod.Annotations = j.Spec.Template.Labels, j.Spec.Template.Annotations
			pod.Spec.NodeName = j.Annotations[sondev1.AnnotationTargetNode]
			pod.Status.Phase, pod.Status.PodIP = corev1.PodPending, "10.1.1.1"
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "probe"}, {Name: "keeper"}}
			w.add(pod)
		}
		before := pod.DeepCopy()
		change(pod)
		before.Status = *pod.Status.DeepCopy()
		if !equality.Semantic.DeepEqual(before, pod) {
			w.update(pod)
		} else if err := w.client.Status().Update(w.t.Context(), pod); err != nil { // one write: there may be many agents
			w.t.Fatal(err)
		}
	}
}

// nodeNow is the time of the nodes' clocks.
func (w *world) nodeNow() metav1.Time { return metav1.NewTime(w.clock.Now().Add(w.nodesAhead)) }

func (w *world) attach(pod *corev1.Pod) {
	yes := true
	pod.Status.Phase = corev1.PodRunning
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: w.nodeNow()}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "probe", State: running, Started: &yes}, {Name: "keeper", State: running, Started: &yes},
	}
}

// end returns a change that ends running probes with this account.
func (w *world) end(a account.Account) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		w.t.Helper()
		b, err := a.Marshal()
		if err != nil {
			w.t.Fatal(err)
		}
		if probe := &pod.Status.ContainerStatuses[0]; probe.State.Terminated == nil {
			probe.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Message: string(b), FinishedAt: w.nodeNow(),
			}}
		}
	}
}

func (w *world) condition(conditionType string) string {
	w.t.Helper()
	for _, c := range w.capture().Status.Conditions {
		if c.Type == conditionType {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

func (w *world) sent() string {
	var all []string
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return strings.Join(all, "\n")
		}
	}
}

func done(reason string) account.Account {
	return account.Account{
		State: account.StateDone, Engine: "afpacket", Reason: reason, Complete: true,
		Started: dawn, Ended: dawn, Counts: account.Counts{Seen: 12, Packets: 10, Bytes: 1000, DroppedRing: 2, Truncated: 1},
		Files: []account.File{{Name: "web.pcapng", Bytes: 1500}},
	}
}

func newCapture(change ...func(*sondev1.PacketCapture)) *sondev1.PacketCapture {
	pc := &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Name: "pc", Namespace: "shop", UID: captureUID, Generation: 1, CreationTimestamp: metav1.NewTime(dawn)},
		Spec: sondev1.PacketCaptureSpec{
			JobID: "qwer", TargetDeployment: "web", Duration: "30", RetainFor: "1h", SnapLength: 262144, MaxBytes: 1 << 30,
		},
	}
	for _, c := range change {
		c(pc)
	}
	return pc
}

// deployment of the given Pods, with its ReplicaSet.
func deployment(pods ...string) []client.Object {
	objects := []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "uid-web"}},
		&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-rs", Namespace: "shop", UID: "uid-rs", OwnerReferences: owned("Deployment", "web", "uid-web")}},
	}
	for _, name := range pods {
		objects = append(objects, webPod(name))
	}
	return objects
}

func webPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(dawn.Add(-time.Hour)),
			OwnerReferences: owned("ReplicaSet", "web-rs", "uid-rs"),
		},
		Spec:   corev1.PodSpec{NodeName: "node-a"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// gateConfig reads the webhook configuration for gates, which selects the namespace "shop".
type gateConfig struct{ *world }

func (g gateConfig) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c, ok := o.(*admissionregistrationv1.MutatingWebhookConfiguration)
	if !ok || key.Name != gate.ConfigurationName {
		return fmt.Errorf("%T %s is read", o, key.Name)
	}
	if slices.Contains(g.gateless, "shop") {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	for _, name := range []string{gate.WebhookName, gate.WebhookNameRequired} {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{Name: name, NamespaceSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{"shop"}}},
		}})
	}
	return nil
}

func (g gateConfig) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("the configuration is read by its name")
}

// now makes a Pod a new one.
func (w *world) now(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(w.clock.Now()) }

func owned(kind, name string, uid types.UID) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: uid, Controller: &yes}}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: labels}}
}

// testScheme holds only the kinds that the reconcilers use, because the fake client scans it on each write.
func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	s.AddKnownTypes(corev1.SchemeGroupVersion,
		&corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.NodeList{}, &corev1.Namespace{}, &corev1.NamespaceList{},
		&corev1.Event{}, &corev1.EventList{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Secret{}, &corev1.SecretList{})
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, batchv1.AddToScheme, nodev1.AddToScheme, sondev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range kind.Captures {
		s.AddKnownTypeWithName(sondev1.GroupVersion.WithKind(k.Name), k.New())
		s.AddKnownTypeWithName(sondev1.GroupVersion.WithKind(k.Name+"List"), k.NewList())
	}
	return s
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
