package fluentpvc

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// sample returns the FluentPVC of config/samples, as the API server sends it.
func sample(t *testing.T) map[string]any {
	t.Helper()
	return read(t, "../../config/samples/monitoring_v1alpha1_fluentpvc.yaml")
}

func read(t *testing.T, file string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := yaml.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// set returns o with a value at a path of fields; nil removes the field.
func set(t *testing.T, o map[string]any, value any, path ...string) map[string]any {
	t.Helper()
	o = (&unstructured.Unstructured{Object: o}).DeepCopy().Object
	if value == nil {
		unstructured.RemoveNestedField(o, path...)
		return o
	}
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(b, &plain); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(o, plain, path...); err != nil {
		t.Fatal(err)
	}
	return o
}

// server answers dry runs, and counts them.
type server struct {
	client.Client
	created []client.Object
	answer  func(client.Object) error
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{answer: func(client.Object) error { return nil }}
	s.Client = interceptor.NewClient(webhooktest.Reader(t).(client.WithWatch), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			var all client.CreateOptions
			all.ApplyOptions(opts)
			if len(all.DryRun) != 1 || all.DryRun[0] != metav1.DryRunAll {
				t.Errorf("%T is created with %+v, want a dry run", o, all)
			}
			if all.FieldValidation != metav1.FieldValidationStrict {
				t.Errorf("%T is created with field validation %q", o, all.FieldValidation)
			}
			s.created = append(s.created, o)
			return s.answer(o)
		},
	})
	return s
}

func mayInject() *webhooktest.Rights {
	r := webhooktest.May("pods/")
	r.Verb = sondev1.VerbInject
	return r
}

func handler(s *server, may *webhooktest.Rights) *Handler {
	return &Handler{Live: s, Reviews: may, Key: webhooktest.Key, OperatorNamespace: webhooktest.OperatorNamespace, Clock: webhooktest.Clock()}
}

func request(t *testing.T, op admissionv1.Operation, object, old any) webhook.AdmissionRequest {
	t.Helper()
	return webhooktest.Request(t, op, "FluentPVC", "", object, old)
}

func TestCreateStamps(t *testing.T) {
	s, may := newServer(t), mayInject()
	req := request(t, admissionv1.Create, set(t, sample(t), map[string]string{sondev1.AnnotationStamp: "forged", "mine": "kept"}, "metadata", "annotations"), nil)
	resp := handler(s, may).Handle(t.Context(), req)
	if !resp.Allowed {
		t.Fatalf("refused: %s", resp.Result.Message)
	}
	var f sondev1.FluentPVC
	webhooktest.Patched(t, req, resp, &f)
	claim, err := stamp.VerifyFluentPVC(webhooktest.Key, &f)
	if err != nil {
		t.Fatal(err)
	}
	if claim.Requester.Username != "alice" || claim.RequestUID != "r-1" || !claim.IssuedAt.Equal(webhooktest.Now) || f.Annotations["mine"] != "kept" {
		t.Errorf("claim %+v, annotations %v", claim, f.Annotations)
	}
	if diff := cmp.Diff([]string{"pods/"}, may.Asked); diff != "" {
		t.Errorf("reviews (-want +got):\n%s", diff)
	}
	var kinds []string
	for _, o := range s.created {
		if o.GetNamespace() != webhooktest.OperatorNamespace || o.GetGenerateName() == "" {
			t.Errorf("%T in namespace %q", o, o.GetNamespace())
		}
		switch o := o.(type) {
		case *corev1.PersistentVolumeClaim:
			kinds = append(kinds, "PersistentVolumeClaim")
		case *batchv1.Job:
			spec := o.Spec.Template.Spec
			kinds = append(kinds, "Job of "+spec.Containers[len(spec.Containers)-1].Command[1])
			if spec.Volumes[0].PersistentVolumeClaim == nil || len(spec.Volumes) != 2 || len(spec.Containers[0].VolumeMounts) != 2 {
				t.Errorf("the dry run lacks volumes or mounts: %+v", spec)
			}
		}
	}
	if diff := cmp.Diff([]string{"PersistentVolumeClaim", "Job of sidecar", "Job of finalizer"}, kinds); diff != "" {
		t.Errorf("dry runs (-want +got):\n%s", diff)
	}
}

// TestNativeSidecarIsValidatedAsInitContainer: its rules differ from those of a container.
func TestNativeSidecarIsValidatedAsInitContainer(t *testing.T) {
	s := newServer(t)
	native := set(t, set(t, sample(t), "Native", "spec", "sidecarMode"), "Always", "spec", "sidecarContainerTemplate", "restartPolicy")
	if resp := handler(s, mayInject()).Handle(t.Context(), request(t, admissionv1.Create, native, nil)); !resp.Allowed {
		t.Fatalf("refused: %s", resp.Result.Message)
	}
	spec := s.created[1].(*batchv1.Job).Spec.Template.Spec
	if len(spec.InitContainers) != 1 || spec.InitContainers[0].Name != "sidecar" || *spec.InitContainers[0].RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Errorf("init containers %+v, want the sidecar with restartPolicy Always", spec.InitContainers)
	}
}

// TestSeedSampleIsRefusedWithBothReasons: the source's sample has a volume name that is none, and a command that is no program.
func TestSeedSampleIsRefusedWithBothReasons(t *testing.T) {
	s := newServer(t)
	resp := handler(s, mayInject()).Handle(t.Context(), request(t, admissionv1.Create, read(t, "testdata/seed.yaml"), nil))
	webhooktest.Refused(t, resp, webhooktest.Invalid,
		`2 problems: spec.commonVolumes[0].name: Invalid value: "SOME_SECRET": write at most 63 of [a-z0-9-], with a letter or digit at both ends, like some-secret; `+
			`spec.sidecarContainerTemplate.command: Invalid value: "echo sidecar": no program; write [echo, sidecar]`)
	if len(s.created) > 0 {
		t.Errorf("%d dry runs of a spec whose problems are known", len(s.created))
	}
}

func TestCreateRefuses(t *testing.T) {
	o := sample(t)
	for name, tc := range map[string]struct {
		object map[string]any
		may    *webhooktest.Rights
		code   int32
		want   []string
	}{
		"no right":     {object: o, may: webhooktest.May(), code: webhooktest.Forbidden, want: []string{"a FluentPVC puts a container into other people's Pods: alice lacks inject on pods/"}},
		"another verb": {object: o, may: webhooktest.May("pods/"), code: webhooktest.Forbidden, want: []string{"alice lacks inject"}},
		"of one namespace": {object: o, may: func() *webhooktest.Rights {
			r := webhooktest.May("pods/shop")
			r.Verb = sondev1.VerbInject
			return r
		}(), code: webhooktest.Forbidden, want: []string{"alice lacks inject"}},
		"no answer to the review":      {object: o, may: &webhooktest.Rights{Err: errors.New("etcd away")}, code: webhooktest.Failed, want: []string{"etcd away: try again"}},
		"a bad spec and no right":      {object: set(t, o, "SIDECAR", "spec", "sidecarContainerTemplate", "name"), may: webhooktest.May(), code: webhooktest.Forbidden, want: []string{"lacks inject"}},
		"a generated name":             {object: set(t, o, map[string]any{"generateName": "logs-"}, "metadata"), code: webhooktest.Invalid, want: []string{"metadata.name is empty"}},
		"a number instead of an image": {object: set(t, o, 7, "spec", "sidecarContainerTemplate", "image"), code: webhooktest.Invalid, want: []string{"image", "put texts in quotes"}},
		"a quantity that is none":      {object: set(t, o, "much", "spec", "pvcSpecTemplate", "resources", "requests", "storage"), code: webhooktest.Invalid, want: []string{"quantities must match"}},
		"an unknown field": {
			object: set(t, o, "x", "spec", "sidecarContainerTemplate", "imagePulPolicy"), code: webhooktest.Invalid,
			want: []string{`unknown field "spec.sidecarContainerTemplate.imagePulPolicy": correct its name, or remove it`},
		},
		"unknown fields and more": {
			object: set(t, set(t, set(t, o, "x", "spec", "pvcSpecTemplate", "storageClas"), "x", "spec", "pvcFinalizerJobSpecTemplate", "template", "spec", "restartpolicy"), "A B", "spec", "pvcVolumeName"),
			code:   webhooktest.Invalid,
			want:   []string{"3 problems", "spec.pvcSpecTemplate.storageClas", "spec.pvcFinalizerJobSpecTemplate.template.spec.restartpolicy", `spec.pvcVolumeName: Invalid value: "A B"`, "like a-b"},
		},
		"an unknown field in a list": {
			object: set(t, o, []any{map[string]any{"name": "A", "val": "b"}}, "spec", "commonEnvs"), code: webhooktest.Invalid, want: []string{`unknown field "spec.commonEnvs[0].val"`},
		},
		"a list that is a map": {object: set(t, o, map[string]any{"name": "A"}, "spec", "commonEnvs"), code: webhooktest.Invalid, want: []string{"read the FluentPVC", "commonEnvs"}},
		"a long script": {
			object: set(t, o, []any{strings.Repeat("x", MaxSpecBytes)}, "spec", "sidecarContainerTemplate", "args"), code: webhooktest.Invalid, want: []string{"a FluentPVC may have 32"},
		},
		"too many labels": {object: set(t, o, manyLabels(65), "metadata", "labels"), code: webhooktest.Invalid, want: []string{"metadata.labels has 65 entries, and a FluentPVC may have 64"}},
		"many problems":   {object: set(t, o, manyEnvs(20), "spec", "commonEnvs"), code: webhooktest.Invalid, want: []string{"20 problems, the first 12"}},
	} {
		t.Run(name, func(t *testing.T) {
			may := mayInject()
			if tc.may != nil {
				may = tc.may
			}
			s := newServer(t)
			webhooktest.Refused(t, handler(s, may).Handle(t.Context(), request(t, admissionv1.Create, tc.object, nil)), tc.code, tc.want...)
			if len(s.created) > 0 {
				t.Errorf("%d dry runs", len(s.created))
			}
		})
	}
}

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels["l"+strings.Repeat("x", i)] = "v"
	}
	return labels
}

func manyEnvs(n int) (envs []corev1.EnvVar) {
	for range n {
		envs = append(envs, corev1.EnvVar{Name: "a="})
	}
	return envs
}

// admitted returns the sample with alice's stamp.
func admitted(t *testing.T) map[string]any {
	t.Helper()
	req := request(t, admissionv1.Create, sample(t), nil)
	var o map[string]any
	webhooktest.Patched(t, req, handler(newServer(t), mayInject()).Handle(t.Context(), req), &o)
	return o
}

func TestUpdate(t *testing.T) {
	old := admitted(t)
	changed := set(t, old, "2h", "spec", "retention")
	annotation := func(name string, value any) map[string]any {
		return set(t, old, value, "metadata", "annotations", name)
	}
	for name, tc := range map[string]struct {
		now       map[string]any
		may       *webhooktest.Rights
		wantStamp bool // in bob's name
		code      int32
		want      string
	}{
		"the spec":                            {now: changed, wantStamp: true},
		"the spec, without the right":         {now: changed, may: webhooktest.May(), code: webhooktest.Forbidden, want: "bob lacks inject"},
		"the spec, to a bad one":              {now: set(t, old, "../x", "spec", "pvcVolumeMountPath"), code: webhooktest.Invalid, want: "write an absolute path"},
		"a label":                             {now: set(t, old, "b", "metadata", "labels", "a"), may: webhooktest.May()},
		"empty fields that typed clients add": {now: set(t, set(t, old, map[string]any{}, "spec", "pvcFinalizerJobSpecTemplate", "template", "metadata"), "1024Mi", "spec", "pvcSpecTemplate", "resources", "requests", "storage"), may: webhooktest.May()},
		"an unknown field":                    {now: set(t, old, "x", "spec", "pvcSpecTemplate", "later"), may: webhooktest.May(), code: webhooktest.Forbidden, want: "bob lacks inject"},
		"another annotation":                  {now: annotation("a", "b"), may: webhooktest.May()},
		"nothing":                             {now: old, may: webhooktest.May()},
		"the stamp forged":                    {now: annotation(sondev1.AnnotationStamp, "00"), may: webhooktest.May(), code: webhooktest.Forbidden, want: "bob lacks inject"},
		"the requester forged":                {now: annotation(sondev1.AnnotationRequester, "{}"), may: webhooktest.May(), code: webhooktest.Forbidden, want: "bob lacks inject"},
		"the stamp removed":                   {now: annotation(sondev1.AnnotationStamp, nil), may: webhooktest.May(), code: webhooktest.Forbidden, want: "bob lacks inject"},
		"the stamp removed, with the right":   {now: set(t, old, nil, "metadata", "annotations"), wantStamp: true},
		"the stamp forged, with the right":    {now: annotation(sondev1.AnnotationStamp, "00"), wantStamp: true},
		"too many labels":                     {now: set(t, old, manyLabels(65), "metadata", "labels"), code: webhooktest.Invalid, want: "metadata.labels has 65 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			may := mayInject()
			if tc.may != nil {
				may = tc.may
			}
			req := request(t, admissionv1.Update, tc.now, old)
			req.UserInfo.Username = "bob"
			s := newServer(t)
			resp := handler(s, may).Handle(t.Context(), req)
			switch {
			case tc.want != "":
				webhooktest.Refused(t, resp, tc.code, tc.want)
			case !resp.Allowed:
				t.Errorf("refused: %s", resp.Result.Message)
			case !tc.wantStamp && (len(resp.Patches) > 0 || len(may.Asked) > 0 || len(s.created) > 0):
				t.Errorf("%d patches, reviews %v, %d dry runs of a spec that stays", len(resp.Patches), may.Asked, len(s.created))
			case tc.wantStamp:
				var f sondev1.FluentPVC
				webhooktest.Patched(t, req, resp, &f)
				if claim, err := stamp.VerifyFluentPVC(webhooktest.Key, &f); err != nil || claim.Requester.Username != "bob" {
					t.Errorf("claim %+v, %v", claim, err)
				}
			}
		})
	}
}

// TestUpdateOfOneThatWasNeverAdmitted: an object that was stored while no webhook ran is admitted, or not, when it changes.
func TestUpdateOfOneThatWasNeverAdmitted(t *testing.T) {
	bad := set(t, sample(t), 7, "spec", "sidecarContainerTemplate", "image")
	if resp := handler(newServer(t), mayInject()).Handle(t.Context(), request(t, admissionv1.Update, sample(t), bad)); !resp.Allowed || len(resp.Patches) == 0 {
		t.Errorf("answer %+v, want a stamp", resp)
	}
	webhooktest.Refused(t, handler(newServer(t), webhooktest.May()).Handle(t.Context(), request(t, admissionv1.Update, sample(t), bad)), webhooktest.Forbidden, "lacks inject")
}

func TestOtherOperationsAreAllowed(t *testing.T) {
	if resp := handler(newServer(t), webhooktest.May()).Handle(t.Context(), request(t, admissionv1.Delete, nil, sample(t))); !resp.Allowed {
		t.Errorf("refused: %s", resp.Result.Message)
	}
}

func TestDryRunAnswers(t *testing.T) {
	job := schema.GroupKind{Group: "batch", Kind: "Job"}
	invalidAt := func(fields ...string) error {
		e := apierrors.NewInvalid(job, "x", nil)
		for _, f := range fields {
			e.ErrStatus.Details.Causes = append(e.ErrStatus.Details.Causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: f, Message: "Invalid value"})
		}
		return e
	}
	for name, tc := range map[string]struct {
		answer error
		code   int32 // 0 if admitted
		want   []string
	}{
		"a field": {
			answer: invalidAt("spec.template.spec.containers[0].image"), code: webhooktest.Invalid,
			want: []string{"2 problems", "a Pod with the sidecar, spec.template.spec.containers[0].image: Invalid value", "spec.pvcFinalizerJobSpecTemplate.template.spec.containers[0].image: Invalid value"},
		},
		"a policy, which names no field":     {answer: apierrors.NewInvalid(job, "x", nil)},
		"a policy with a cause":              {answer: invalidAt("")},
		"a quota of the operator's":          {answer: apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "x", errors.New("exceeded quota"))},
		"a webhook without dry runs":         {answer: apierrors.NewBadRequest(`admission webhook "x" does not support dry run`)},
		"an older API server":                {answer: apierrors.NewBadRequest(`Job in version "v1" cannot be handled as a Job: strict decoding error: unknown field "spec.new"`), code: webhooktest.Invalid, want: []string{`is older than a field in the templates: unknown field "spec.new"`}},
		"an API server that fails":           {answer: apierrors.NewInternalError(errors.New("etcd away")), code: webhooktest.Failed, want: []string{"validate the templates by a dry run in namespace sonde-system", "etcd away", "try again"}},
		"an API server that does not answer": {answer: errors.New("connection refused"), code: webhooktest.Failed, want: []string{"connection refused: try again"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.answer = func(o client.Object) error {
				if _, ok := o.(*batchv1.Job); ok {
					return tc.answer
				}
				return nil
			}
			resp := handler(s, mayInject()).Handle(t.Context(), request(t, admissionv1.Create, sample(t), nil))
			if tc.code == 0 {
				if !resp.Allowed {
					t.Errorf("refused: %s", resp.Result.Message)
				}
				return
			}
			webhooktest.Refused(t, resp, tc.code, tc.want...)
		})
	}
}

// TestStampOutlivesTime: a FluentPVC is used and changed long after its creation.
func TestStampOutlivesTime(t *testing.T) {
	f := &sondev1.FluentPVC{}
	b, err := json.Marshal(admitted(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, f); err != nil {
		t.Fatal(err)
	}
	f.CreationTimestamp = metav1.NewTime(webhooktest.Now.Add(-365 * 24 * time.Hour))
	if _, err := stamp.VerifyFluentPVC(webhooktest.Key, f); err != nil {
		t.Error(err)
	}
}
