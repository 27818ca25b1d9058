package capture

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/duration"
)

// Bounds of a ring that hold whatever the API's are: their product must be a number of bytes.
const (
	maxRotateBytes = 1 << 40
	minRotateFiles = 2
	maxRotateFiles = 16
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
	MaxBytes string
	// Rotate keeps the newest in a ring of files: "100Mi:5" is five of 100 MiB. Without MaxBytes that is their product.
	Rotate     string
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
	maxBytes, err := parseBytes("--max-bytes", r.MaxBytes)
	if err != nil {
		return nil, err
	}
	rotate, err := parseRotate(r.Rotate)
	if err != nil {
		return nil, err
	}
	if rotate != nil && maxBytes == 0 {
		maxBytes = rotate.MaxBytes * int64(rotate.Files)
	}
	target := r.Target
	pc := &v1alpha1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name},
		Spec: v1alpha1.PacketCaptureSpec{
			JobID: r.JobID, TargetRef: &target, Duration: r.Duration, RetainFor: r.RetainFor, Filter: r.Filter,
			SnapLength: r.SnapLength, Interfaces: r.Interfaces, MaxBytes: maxBytes, Rotate: rotate,
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

// parseRotate reads SIZE:FILES; nil for nothing.
func parseRotate(s string) (*v1alpha1.Rotate, error) {
	if s == "" {
		return nil, nil
	}
	size, count, _ := strings.Cut(s, ":")
	bytes, err := parseBytes("--rotate", size)
	files, cerr := strconv.ParseInt(count, 10, 32)
	if err != nil || bytes == 0 || bytes > maxRotateBytes || cerr != nil || files < minRotateFiles || files > maxRotateFiles {
		return nil, fmt.Errorf("--rotate %q: write the size of a file and how many are kept, %d to %d, like 100Mi:5", s, minRotateFiles, maxRotateFiles)
	}
	return &v1alpha1.Rotate{MaxBytes: bytes, Files: int32(files)}, nil
}

func parseBytes(flag, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return 0, fmt.Errorf("%s %q: write a number of bytes, like 100Mi, 2Gi or 1000000", flag, s)
	}
	n, ok := q.AsInt64()
	if !ok || n <= 0 {
		return 0, fmt.Errorf("%s %q: write a whole number of bytes above zero, like 100Mi", flag, s)
	}
	return n, nil
}
