package stamp

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite golden files")

// fluentPVCText is a FluentPVC as users write it: quantities in other than their canonical form, numbers as texts, empty fields.
const fluentPVCText = `{
  "metadata": {"name": "logs"},
  "spec": {
    "pvcSpecTemplate": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}, "storageClassName": ""},
    "pvcFinalizerJobSpecTemplate": {"backoffLimit": 0, "template": {"metadata": {"creationTimestamp": null}, "spec": {
      "restartPolicy": "Never", "nodeSelector": {}, "tolerations": [],
      "containers": [{"name": "upload", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1073741824"}, "requests": {"cpu": 0.5}}}]}}},
    "pvcVolumeName": "logs", "pvcVolumeMountPath": "/logs",
    "sidecarContainerTemplate": {"name": "sidecar", "image": "i", "args": ["<&>"], "resources": {"limits": {"cpu": "1000m"}}, "ports": [{"containerPort": 80}],
      "livenessProbe": {"httpGet": {"port": "http", "path": "/"}}},
    "commonVolumes": [{"name": "scratch", "emptyDir": {}}], "commonEnvs": [{"name": "A", "value": "1"}],
    "deletePodIfSidecarContainerTerminationDetected": true, "sidecarMode": "Container", "retention": "0s",
    "finalizer": {"backoff": "10s", "maxAttempts": 3}, "maxBindings": 500
  }
}`

func fluentPVC(t *testing.T) *sondev1.FluentPVC {
	t.Helper()
	var f sondev1.FluentPVC
	if err := json.Unmarshal([]byte(fluentPVCText), &f); err != nil {
		t.Fatal(err)
	}
	return &f
}

func TestVerifyFluentPVC(t *testing.T) {
	for name, tc := range map[string]struct {
		key    []byte
		change func(*sondev1.FluentPVC)
		want   error
	}{
		"as admitted":    {},
		"a year later":   {change: func(f *sondev1.FluentPVC) { f.CreationTimestamp = metav1.NewTime(admitted.Add(-365 * 24 * time.Hour)) }},
		"labelled since": {change: func(f *sondev1.FluentPVC) { f.Labels = map[string]string{"a": "b"} }},
		"another name":   {change: func(f *sondev1.FluentPVC) { f.Name = "logs2" }, want: ErrInvalid},
		"another image":  {change: func(f *sondev1.FluentPVC) { f.Spec.SidecarContainerTemplate.Image = "j" }, want: ErrInvalid},
		"another Job":    {change: func(f *sondev1.FluentPVC) { f.Spec.PVCFinalizerJobSpecTemplate.BackoffLimit = new(int32(1)) }, want: ErrInvalid},
		"another volume": {change: func(f *sondev1.FluentPVC) { f.Spec.PVCSpecTemplate.StorageClassName = nil }, want: ErrInvalid},
		"a further volume": {change: func(f *sondev1.FluentPVC) {
			f.Spec.CommonVolumes = append(f.Spec.CommonVolumes, corev1.Volume{Name: "x"})
		}, want: ErrInvalid},
		"a longer wait":  {change: func(f *sondev1.FluentPVC) { f.Spec.Finalizer.Backoff = "11s" }, want: ErrInvalid},
		"another key":    {key: bytes.Repeat([]byte{8}, KeyBytes), want: ErrInvalid},
		"no stamp":       {change: func(f *sondev1.FluentPVC) { delete(f.Annotations, sondev1.AnnotationStamp) }, want: ErrMissing},
		"no requester":   {change: func(f *sondev1.FluentPVC) { delete(f.Annotations, sondev1.AnnotationRequester) }, want: ErrMissing},
		"a forged stamp": {change: func(f *sondev1.FluentPVC) { f.Annotations[sondev1.AnnotationStamp] = "00" }, want: ErrInvalid},
		"another requester": {change: func(f *sondev1.FluentPVC) {
			f.Annotations[sondev1.AnnotationRequester] = sign(t, testSpec())[sondev1.AnnotationRequester]
		}, want: ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			f := fluentPVC(t)
			var err error
			if f.Annotations, err = SignFluentPVC(testKey, f, testClaim()); err != nil {
				t.Fatal(err)
			}
			key := testKey
			if tc.key != nil {
				key = tc.key
			}
			if tc.change != nil {
				tc.change(f)
			}
			claim, err := VerifyFluentPVC(key, f)
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if tc.want == nil && claim.Requester.Username != "alice" {
				t.Errorf("claim %+v", claim)
			}
		})
	}
}

// TestStampsOfOtherKindsAreNoFluentPVCs: the name of a FluentPVC may be a namespace's.
func TestStampsOfOtherKindsAreNoFluentPVCs(t *testing.T) {
	f := fluentPVC(t)
	var err error
	if f.Annotations, err = Sign(testKey, f.Name, KindResultAccess, &f.Spec, testClaim()); err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyFluentPVC(testKey, f); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, want %v", err, ErrInvalid)
	}
}

// TestFluentPVCStampOutlivesARoundTrip: what the API server stores and returns has the same meaning in other words.
func TestFluentPVCStampOutlivesARoundTrip(t *testing.T) {
	f := fluentPVC(t)
	var err error
	if f.Annotations, err = SignFluentPVC(testKey, f, testClaim()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		f = &sondev1.FluentPVC{}
		if err := json.Unmarshal(b, f); err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyFluentPVC(testKey, f); err != nil {
			t.Error(err)
		}
		if _, err := VerifyFluentPVC(testKey, f.DeepCopy()); err != nil {
			t.Errorf("of a copy: %v", err)
		}
	}
}

// TestSignedFluentPVC holds the signed bytes. A difference after an update of k8s.io/api means that its types are encoded in
// another way: then the stamps of all installed FluentPVCs are invalid, unless canonical is taught the old encoding.
func TestSignedFluentPVC(t *testing.T) {
	const golden = "testdata/fluentpvc.json"
	f := fluentPVC(t)
	fields, err := fieldsOf(&f.Spec)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := canonical(&f.Spec, fields)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, signed, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("signed bytes (-want +got):\n%s", diff)
	}
}

// TestFluentPVCHasTheJobOfItsVersion: fields of the templates are signed in full, not only those that Sonde looks at.
func TestFluentPVCHasTheJobOfItsVersion(t *testing.T) {
	f := fluentPVC(t)
	var err error
	if f.Annotations, err = SignFluentPVC(testKey, f, testClaim()); err != nil {
		t.Fatal(err)
	}
	f.Spec.PVCFinalizerJobSpecTemplate.PodReplacementPolicy = new(batchv1.Failed)
	if _, err := VerifyFluentPVC(testKey, f); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, want %v", err, ErrInvalid)
	}
}
