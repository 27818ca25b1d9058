package fewreads_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

const own = "sonde-system"

// server is an API server with one answer, which it sends as protobuf to clients that prefer that.
type server struct{ asProtobuf, asJSON []byte }

func serve(t *testing.T, o kruntime.Object) server {
	t.Helper()
	encoded := func(e kruntime.Encoder) []byte {
		var b bytes.Buffer
		if err := e.Encode(o, &b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	return server{
		encoded(protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme)),
		encoded(json.NewSerializerWithOptions(json.DefaultMetaFactory, clientgoscheme.Scheme, clientgoscheme.Scheme, json.SerializerOptions{})),
	}
}

// RoundTrip implements http.RoundTripper.
func (s server) RoundTrip(req *http.Request) (*http.Response, error) {
	body, kind := s.asJSON, "application/json"
	if strings.HasPrefix(req.Header.Get("Accept"), "application/vnd.kubernetes.protobuf") {
		body, kind = s.asProtobuf, "application/vnd.kubernetes.protobuf"
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, nil
}

// reader reads from the server within limits, by the wrapper, which is nil if the answers are not cut.
func (s server) reader(t *testing.T, limits fewreads.Limits, wrapper func(http.RoundTripper) http.RoundTripper) client.Reader {
	t.Helper()
	config := &rest.Config{Host: "http://127.0.0.1", QPS: -1, Transport: s}
	if wrapper != nil {
		config.Wrap(wrapper)
	}
	mapper := apimeta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"} {
		mapper.Add(appsv1.SchemeGroupVersion.WithKind(kind), apimeta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), apimeta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), apimeta.RESTScopeNamespace)
	mapper.Add(sondev1.GroupVersion.WithKind("PacketCapture"), apimeta.RESTScopeNamespace)
	mapper.Add(batchv1.SchemeGroupVersion.WithKind("Job"), apimeta.RESTScopeNamespace)
	c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return fewreads.New(c, own, limits)
}

// crafted has 740,000 empty terms of node affinity: 1.4 MiB in etcd.
func crafted() corev1.PodSpec {
	return corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web", Image: "web:1"}},
		Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 740_000)},
		}},
	}
}

func pod(spec corev1.PodSpec) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Namespace: "shop", UID: "u-1", ResourceVersion: "5", CreationTimestamp: metav1.NewTime(time.Unix(1000, 0)),
			DeletionTimestamp:          &metav1.Time{Time: time.Unix(2000, 0)},
			OwnerReferences:            []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u-2", Controller: new(true)}},
			Labels:                     map[string]string{"app": "web", sondev1.LabelTraceRequired: "true"},
			Annotations:                map[string]string{"x": strings.Repeat("x", 1000), sondev1.AnnotationGatedByUID: "t-1"},
			DeletionGracePeriodSeconds: new(int64(30)),
		},
		Spec: spec,
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1", StartTime: &metav1.Time{Time: time.Unix(1001, 0)},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: gateconfig.ContainerName, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Message: "Opened 7ms", ContainerID: "containerd://c0ffee", FinishedAt: metav1.NewTime(time.Unix(1002, 0))},
			}}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "web", RestartCount: 3, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "a text", FinishedAt: metav1.NewTime(time.Unix(1003, 0))},
			}}},
		},
	}
}

// usual has everything that the operator reads of a spec.
func usual() corev1.PodSpec {
	return corev1.PodSpec{
		NodeName: "node-a", HostNetwork: true, HostPID: true, RuntimeClassName: new("kata"), ServiceAccountName: "web", SchedulerName: "other",
		Containers: []corev1.Container{{Name: "web", Image: "web:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}, InitContainers: []corev1.Container{{Name: "sonde-gate"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
	}
}

// TestCutKeepsWhatIsRead: a Pod that was cut is the same for the operator, and so is one of a list. The rest is gone.
func TestCutKeepsWhatIsRead(t *testing.T) {
	whole := pod(usual())
	check := func(t *testing.T, got *corev1.Pod) {
		t.Helper()
		if diff := cmp.Diff(target.SlimPod(whole).Expand(), target.SlimPod(got).Expand()); diff != "" {
			t.Errorf("the Pod as the operator keeps it (-whole +cut):\n%s", diff)
		}
		for _, c := range []struct{ whole, cut any }{
			{whole.Spec.Containers[0].Name, got.Spec.Containers[0].Name},
			{whole.Spec.Containers[0].Ports[0].ContainerPort, got.Spec.Containers[0].Ports[0].ContainerPort},
			{whole.Spec.InitContainers[0].Name, got.Spec.InitContainers[0].Name},
			{whole.Spec.EphemeralContainers[0].Name, got.Spec.EphemeralContainers[0].Name},
			{whole.Spec.ServiceAccountName, got.Spec.ServiceAccountName},
			{"", got.Spec.SchedulerName},
			{1, len(got.Annotations)},
			// controllers/capture reads from these when the Pod was deleted, and when it ended.
			{*whole.DeletionGracePeriodSeconds, *got.DeletionGracePeriodSeconds},
			{whole.Status.ContainerStatuses[0].State.Terminated.FinishedAt.Unix(), got.Status.ContainerStatuses[0].State.Terminated.FinishedAt.Unix()},
		} {
			if c.whole != c.cut {
				t.Errorf("got %v, want %v", c.cut, c.whole)
			}
		}
	}
	var got corev1.Pod
	if err := serve(t, whole).reader(t, fewreads.Limits{Places: 1}, fewreads.Cut).Get(t.Context(), client.ObjectKeyFromObject(whole), &got); err != nil {
		t.Fatal(err)
	}
	check(t, &got)
	var list corev1.PodList
	many := &corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "more"}, Items: []corev1.Pod{*whole},
	}
	if err := serve(t, many).reader(t, fewreads.Limits{Places: 1}, fewreads.Cut).List(t.Context(), &list, client.InNamespace("shop")); err != nil {
		t.Fatal(err)
	}
	if list.Continue != "more" || len(list.Items) != 1 {
		t.Fatalf("%d Pods, continued by %q", len(list.Items), list.Continue)
	}
	check(t, &list.Items[0])
	list = corev1.PodList{}
	if err := serve(t, many).reader(t, fewreads.Limits{Places: 1}, fewreads.Cut).List(t.Context(), &list, client.InNamespace(own)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(many.Items, list.Items, cmpopts.IgnoreTypes(metav1.TypeMeta{})); diff != "" {
		t.Errorf("Pods of the operator's namespace (-want +got):\n%s", diff)
	}
}

// TestCutKeepsWhatFluentPVCReads: the FluentPVC that a Pod names, and the states of its containers; whose a claim or a Job is, and how it is.
func TestCutKeepsWhatFluentPVCReads(t *testing.T) {
	p := pod(usual())
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = nil, nil
	p.Labels = map[string]string{sondev1.KeyFluentPVC: "logs", sondev1.KeyFluentPVCSource: "logs", "app": "web"}
	p.Annotations = map[string]string{sondev1.KeyFluentPVC: "", sondev1.AnnotationClaim: "logs/claim/00", "x": "y"}
	read := func(o client.Object) client.Object {
		t.Helper()
		got := o.DeepCopyObject().(client.Object)
		reflect.ValueOf(got).Elem().SetZero()
		if err := serve(t, o).reader(t, fewreads.Limits{Places: 1}, fewreads.Cut).Get(t.Context(), client.ObjectKeyFromObject(o), got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := read(p).(*corev1.Pod)
	want := map[string]string{sondev1.KeyFluentPVC: "logs", sondev1.KeyFluentPVCSource: "logs"}
	if diff := cmp.Diff(want, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	want = map[string]string{sondev1.KeyFluentPVC: "", sondev1.AnnotationClaim: "logs/claim/00"}
	if diff := cmp.Diff(want, got.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if c := got.Status.ContainerStatuses[0]; c.Name != "web" || c.RestartCount != 3 || c.State.Terminated.ExitCode != 1 || c.State.Terminated.Message != "" {
		t.Errorf("container status %+v", c)
	}
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "logs-1", UID: "u-1", ResourceVersion: "7",
		Labels:          map[string]string{sondev1.LabelKind: "FluentPVCBinding", sondev1.LabelUID: "b-1", sondev1.LabelTargetPodUID: "p-1"},
		Annotations:     map[string]string{sondev1.AnnotationOwner: "shop/logs-1", sondev1.AnnotationClaim: "signed", sondev1.AnnotationTargetPod: "web-1", sondev1.AnnotationDiscard: "", sondev1.AnnotationRun: "7", sondev1.AnnotationGeneration: "3"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "K", Name: "n", UID: "o-1", Controller: new(true)}},
	}
	for name, o := range map[string]client.Object{
		"claim": &corev1.PersistentVolumeClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: meta,
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		},
		"Job": &batchv1.Job{
			TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: meta,
			Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(o, read(o), cmpopts.IgnoreTypes(metav1.TypeMeta{})); diff != "" {
				t.Errorf("as it is cut (-whole +cut):\n%s", diff)
			}
		})
	}
}

// TestCutPicksExactKeys: the API server takes Kind and kind for two labels.
func TestCutPicksExactKeys(t *testing.T) {
	upper := func(keys ...string) map[string]string {
		m := map[string]string{}
		for _, k := range keys {
			at := strings.Index(k, "/") + 1
			m[k[:at]+strings.ToUpper(k[at:at+1])+k[at+1:]] = "forged"
		}
		return m
	}
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "logs-1",
		Labels:      upper(sondev1.LabelKind, sondev1.LabelUID, sondev1.LabelTargetPodUID, sondev1.LabelTraceRequired, sondev1.KeyFluentPVC),
		Annotations: upper(sondev1.AnnotationOwner, sondev1.AnnotationClaim, sondev1.AnnotationDiscard, sondev1.AnnotationGatedByUID, sondev1.KeyFluentPVC),
	}
	for name, o := range map[string]client.Object{
		"claim": &corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: meta},
		"Pod":   &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta},
	} {
		got := o.DeepCopyObject().(client.Object)
		reflect.ValueOf(got).Elem().SetZero()
		if err := serve(t, o).reader(t, fewreads.Limits{Places: 1}, fewreads.Cut).Get(t.Context(), client.ObjectKeyFromObject(o), got); err != nil {
			t.Fatal(err)
		}
		if len(got.GetLabels())+len(got.GetAnnotations()) > 0 || got.GetName() != "logs-1" {
			t.Errorf("%s: %v, %v", name, got.GetLabels(), got.GetAnnotations())
		}
	}
}

// metadata has 60,000 labels, as a user may write them on a claim of theirs.
func metadata() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "logs-1", UID: "u-1", Labels: map[string]string{sondev1.LabelKind: "FluentPVCBinding"}},
	}
	for i := range 60_000 {
		o.Labels[strconv.Itoa(i)] = ""
	}
	return o
}

// readMetadata reads the metadata of a claim.
func readMetadata(ctx context.Context, r client.Reader) (*metav1.PartialObjectMetadata, error) {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	return o, r.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "logs-1"}, o)
}

func TestCutKeepsOurMetadata(t *testing.T) {
	got, err := readMetadata(t.Context(), serve(t, metadata()).reader(t, fewreads.Limits{Places: 1}, fewreads.Cut))
	if err != nil || got.UID != "u-1" || len(got.Labels) != 1 || got.Labels[sondev1.LabelKind] != "FluentPVCBinding" {
		t.Errorf("UID %s, %d labels, %v", got.UID, len(got.Labels), err)
	}
}

// TestMetadataOfCapturesIsWhole: their managed fields say when they were stopped.
func TestMetadataOfCapturesIsWhole(t *testing.T) {
	whole := metadata()
	whole.Labels = map[string]string{"app": "web"}
	whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate}}
	got := &metav1.PartialObjectMetadata{}
	got.SetGroupVersionKind(sondev1.GroupVersion.WithKind("PacketCapture"))
	if err := serve(t, whole).reader(t, fewreads.Limits{Places: 1}, fewreads.Cut).Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "logs-1"}, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole.ObjectMeta, got.ObjectMeta); diff != "" {
		t.Errorf("(-whole +got):\n%s", diff)
	}
}

// TestCutKeepsTheSelector: the Pods of a workload are found by its selector.
func TestCutKeepsTheSelector(t *testing.T) {
	whole := deployment(usual())
	var got appsv1.Deployment
	if err := serve(t, whole).reader(t, fewreads.Limits{Places: 1}, fewreads.Cut).Get(t.Context(), client.ObjectKeyFromObject(whole), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole.Spec.Selector, got.Spec.Selector); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
	if is := got.Spec.Template.Spec; !is.HostNetwork || !is.HostPID || is.Containers[0].Name != "web" || is.SchedulerName != "" {
		t.Errorf("template %+v", is)
	}
}

func deployment(spec corev1.PodSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpExists}}},
			Template: corev1.PodTemplateSpec{Spec: spec},
		},
	}
}

// TestCutBoundsAnObject: an object over the bound is an error that says so.
func TestCutBoundsAnObject(t *testing.T) {
	large := deployment(crafted())
	long := deployment(usual())
	long.Spec.Selector.MatchLabels["y"] = strings.Repeat("y", 300<<10)
	for name, tc := range map[string]struct {
		o     *appsv1.Deployment
		bytes int64
		any   bool
		want  string
	}{
		"usual":            {o: deployment(usual()), bytes: 1 << 20},
		"a large one":      {o: large, bytes: 1 << 20, want: "it has more than 1024 KiB as JSON"},
		"without a bound":  {o: large},
		"any selector":     {o: long, any: true},
		"a large selector": {o: long, want: "its containers, selector and owners have more than 256 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			err := serve(t, tc.o).reader(t, fewreads.Limits{Places: 1, Bytes: tc.bytes, Unbounded: tc.any}, fewreads.Cut).Get(t.Context(), client.ObjectKeyFromObject(tc.o), &appsv1.Deployment{})
			if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, fewreads.ErrTooLarge) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestReadsOnTheHeap compares what reads of crafted objects take of the heap with whole objects, as they were read before.
func TestReadsOnTheHeap(t *testing.T) {
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{*pod(crafted())}}
	claim := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "logs-1", Labels: map[string]string{}},
	}
	for i := range 150_000 { // 1.5 MiB
		claim.Labels[strconv.Itoa(i)] = ""
	}
	job := &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "logs-1-1"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: crafted()}},
	}
	taken := func(read func(context.Context) error) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := read(t.Context()); err != nil && !errors.Is(err, fewreads.ErrTooLarge) {
			t.Error(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for name, tc := range map[string]struct {
		o     kruntime.Object
		bytes int64
		read  func(context.Context, client.Reader) error
		most  uint64
		least uint64 // of the control
	}{
		"a Deployment, by a webhook": {deployment(crafted()), 1 << 20, func(ctx context.Context, r client.Reader) error {
			return r.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, &appsv1.Deployment{})
		}, 8 << 20, 32 << 20},
		"a Deployment, by a controller": {deployment(crafted()), 0, func(ctx context.Context, r client.Reader) error {
			return r.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, &appsv1.Deployment{})
		}, 16 << 20, 32 << 20},
		"a Pod": {pod(crafted()), 0, func(ctx context.Context, r client.Reader) error {
			return r.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web-1"}, &corev1.Pod{})
		}, 16 << 20, 32 << 20},
		"a claim": {claim, 0, func(ctx context.Context, r client.Reader) error {
			return r.Get(ctx, client.ObjectKeyFromObject(claim), &corev1.PersistentVolumeClaim{})
		}, 12 << 20, 20 << 20},
		"a Job": {job, 0, func(ctx context.Context, r client.Reader) error {
			return r.Get(ctx, client.ObjectKeyFromObject(job), &batchv1.Job{})
		}, 16 << 20, 20 << 20},
		"metadata": {metadata(), 0, func(ctx context.Context, r client.Reader) error {
			_, err := readMetadata(ctx, r)
			return err
		}, 6 << 20, 10 << 20},
		"a list of Pods": {list, 0, func(ctx context.Context, r client.Reader) error {
			return r.List(ctx, &corev1.PodList{}, client.InNamespace("shop"))
		}, 16 << 20, 32 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			limits := fewreads.Limits{Places: 1, Bytes: tc.bytes}
			s := serve(t, tc.o)
			whole, cut := s.reader(t, limits, nil), s.reader(t, limits, fewreads.Cut)
			was := taken(func(ctx context.Context) error { return tc.read(ctx, whole) })
			now := taken(func(ctx context.Context) error { return tc.read(ctx, cut) })
			t.Logf("%d KiB in etcd take %d KiB of the heap, and took %d KiB", len(s.asProtobuf)>>10, now>>10, was>>10)
			if now > tc.most || was < tc.least {
				t.Errorf("it takes %d KiB, and took %d KiB, want at most %d, and the control at least %d", now>>10, was>>10, tc.most>>10, tc.least>>10)
			}
		})
	}
}
