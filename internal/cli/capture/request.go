package capture

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/duration"
)

// Request is what a user asks for. What is zero is left to the API's defaults.
type Request struct {
	// Namespace of the PacketCapture, and its Name; one is made from the target's when it is empty.
	Namespace string
	Name      string
	Target    v1alpha1.TargetReference
	// TargetNamespace is the target's, where it is not Namespace.
	TargetNamespace string
	// Duration and RetainFor as in the API: "30", "90s", "5m".
	Duration   string
	RetainFor  string
	Filter     string
	SnapLength int32
	// MaxBytes per Pod's file as a quantity: "100Mi".
	MaxBytes   string
	MaxPackets int64
	Interfaces []string
	NoFollow   bool
	JobID      string
}

// Build returns the PacketCapture to create, or an error that says which flag to write differently.
// Bounds are the API server's to check: it may be newer than this plugin.
func (r Request) Build() (*v1alpha1.PacketCapture, error) {
	for flag, value := range map[string]string{"--for": r.Duration, "--retain-for": r.RetainFor} {
		if value == "" {
			continue
		}
		if _, err := duration.Parse(value); err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
	}
	maxBytes, err := parseBytes(r.MaxBytes)
	if err != nil {
		return nil, err
	}
	target := r.Target
	pc := &v1alpha1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name},
		Spec: v1alpha1.PacketCaptureSpec{
			JobID: r.JobID, TargetRef: &target, Duration: r.Duration, RetainFor: r.RetainFor, Filter: r.Filter,
			SnapLength: r.SnapLength, Interfaces: r.Interfaces, MaxBytes: maxBytes,
		},
	}
	if r.Name == "" {
		pc.GenerateName = target.Name + "-"
	}
	if r.TargetNamespace != r.Namespace {
		pc.Spec.TargetNamespace = r.TargetNamespace
	}
	if r.MaxPackets != 0 {
		pc.Spec.MaxPackets = &r.MaxPackets
	}
	if r.NoFollow {
		follow := false
		pc.Spec.FollowPods = &follow
	}
	return pc, nil
}

func parseBytes(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return 0, fmt.Errorf("--max-bytes %q: write a number of bytes, like 100Mi, 2Gi or 1000000", s)
	}
	n, ok := q.AsInt64()
	if !ok || n <= 0 {
		return 0, fmt.Errorf("--max-bytes %q: write a whole number of bytes above zero, like 100Mi", s)
	}
	return n, nil
}
