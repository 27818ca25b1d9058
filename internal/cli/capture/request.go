package capture

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/duration"
)

// Limits of a ring that the API does not check: the product of size and files must fit into 64 bits.
const (
	maxRotateBytes = 1 << 40
	minRotateFiles = 2
	maxRotateFiles = 16
)

// Request is the input of the user. Fields that are zero get the defaults of the API.
type Request struct {
	// Namespace and Name of the capture. An empty Name is generated from the target's.
	Namespace string
	Name      string
	Target    v1alpha1.TargetReference
	// TargetNamespace is the namespace of the target; empty means Namespace.
	TargetNamespace string
	// Duration and RetainFor as in the API: "30", "90s", "5m".
	Duration  string
	RetainFor string
	// MaxBytes of each Pod as a quantity: "100Mi".
	MaxBytes string
	NoFollow bool
	JobID    string

	// Only for packets.
	Filter     string
	SnapLength int32
	// Rotate keeps the newest packets in a ring of files: "100Mi:5" is five files of 100 MiB. MaxBytes defaults to
	// their sum.
	Rotate     string
	MaxPackets int64
	Interfaces []string
	// Engine as in the API.
	Engine string
	// Processes makes packets name their processes.
	Processes bool

	// Only for system calls. MinLatency as in the API: "10ms".
	Events     []string
	MinLatency string
	MaxEvents  int64
	Format     string
	// Containers, Command and Children select processes; all if they are empty.
	Containers []string
	Command    string
	Children   bool
	// Gate makes new Pods wait. GateTimeout is written like Duration, GateOnTimeout as in the API; both need Gate.
	Gate          bool
	GateTimeout   string
	GateOnTimeout string
}

// Build returns the PacketCapture to create, or an error that says which flag to change. The API server checks the
// limits, because it may be newer than this plugin.
func (r Request) Build() (*v1alpha1.PacketCapture, error) {
	maxBytes, err := r.validateCommon()
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
	pc := &v1alpha1.PacketCapture{
		ObjectMeta: r.objectMeta(),
		Spec: v1alpha1.PacketCaptureSpec{
			JobID: r.JobID, TargetRef: &r.Target, TargetNamespace: r.targetNamespace(), Duration: r.Duration,
			RetainFor: cmp.Or(r.RetainFor, retention(r.Duration, 0)),
			Filter:    r.Filter, SnapLength: r.SnapLength, Interfaces: r.Interfaces, MaxBytes: maxBytes, Rotate: rotate,
			MaxPackets: nilIfZero(r.MaxPackets), FollowPods: r.followPods(), Engine: v1alpha1.CaptureEngine(r.Engine),
			Processes: r.Processes,
		},
	}
	return pc, nil
}

// minLatency is the pattern of the API.
var minLatency = regexp.MustCompile(`^[0-9]{1,9}(ns|us|ms|s)$`)

// BuildTrace returns the Trace to create. Errors are as in Build.
func (r Request) BuildTrace() (*v1alpha1.Trace, error) {
	maxBytes, err := r.validateCommon()
	if err != nil {
		return nil, err
	}
	if r.MinLatency != "" && !minLatency.MatchString(r.MinLatency) {
		return nil, fmt.Errorf("--min-latency %q: write a number with ns, us, ms or s, like 500us or 10ms", r.MinLatency)
	}
	trace := &v1alpha1.Trace{
		ObjectMeta: r.objectMeta(),
		Spec: v1alpha1.TraceSpec{
			JobID: r.JobID, TargetRef: &r.Target, TargetNamespace: r.targetNamespace(), Duration: r.Duration,
			RetainFor:  cmp.Or(r.RetainFor, retention(r.Duration, unboundedTrace)),
			Containers: r.Containers, Command: r.Command, Children: r.Children,
			MinLatency: r.MinLatency, Format: v1alpha1.TraceFormat(r.Format), MaxBytes: maxBytes,
			MaxEvents: nilIfZero(r.MaxEvents), FollowPods: r.followPods(),
		},
	}
	if r.Children && r.Command == "" {
		return nil, errors.New("--children needs --command: it also traces the processes that a command starts. Add --command, or omit --children to trace all processes")
	}
	if trace.Spec.Gate, err = r.gate(); err != nil {
		return nil, err
	}
	for _, group := range r.Events {
		trace.Spec.Events = append(trace.Spec.Events, v1alpha1.TraceGroup(strings.TrimSpace(group)))
	}
	return trace, nil
}

// defaultRetention is the API's default of retainFor. unboundedTrace is how long a trace without a duration lasts at most, unless an admin
// has changed the manager's ceiling.
const (
	defaultRetention = time.Hour
	unboundedTrace   = 4 * time.Hour
)

// retention returns for how long the cluster must keep each Pod's files, or nothing if the API's default is enough. The time begins when
// the Pod's own capture ends, for example because its file is full. But the plugin saves all files when the last Pod's capture has ended.
func retention(lasts string, unbounded time.Duration) string {
	d, err := duration.Parse(lasts)
	if err != nil { // it is empty: others were refused
		d = unbounded
	}
	if d <= defaultRetention/2 {
		return ""
	}
	return fmt.Sprintf("%ds", int((d + defaultRetention).Seconds()))
}

// gate returns nil if the user did not request one.
func (r Request) gate() (*v1alpha1.TraceGate, error) {
	if !r.Gate {
		if r.GateTimeout != "" || r.GateOnTimeout != "" {
			return nil, errors.New("--gate-timeout and --gate-on-timeout need --gate: add it to make new Pods wait")
		}
		return nil, nil
	}
	if r.NoFollow {
		return nil, errors.New("--gate makes new Pods wait for their tracer, and --no-follow does not trace new Pods: omit one of the two")
	}
	if r.GateTimeout != "" {
		if _, err := duration.Parse(r.GateTimeout); err != nil {
			return nil, fmt.Errorf("--gate-timeout: %w", err)
		}
	}
	g := &v1alpha1.TraceGate{Enabled: true, Timeout: r.GateTimeout}
	for _, known := range []v1alpha1.GateOnTimeout{v1alpha1.GateProceed, v1alpha1.GateFail} {
		if strings.EqualFold(r.GateOnTimeout, string(known)) {
			g.OnTimeout = known
		}
	}
	if r.GateOnTimeout != "" && g.OnTimeout == "" {
		return nil, fmt.Errorf("--gate-on-timeout %q: write %s or %s", r.GateOnTimeout, v1alpha1.GateProceed, v1alpha1.GateFail)
	}
	return g, nil
}

// validateCommon checks the fields that all kinds have, and returns MaxBytes as a number.
func (r Request) validateCommon() (maxBytes int64, err error) {
	for flag, value := range map[string]string{"--for": r.Duration, "--retain-for": r.RetainFor} {
		if value == "" {
			continue
		}
		if _, err := duration.Parse(value); err != nil {
			return 0, fmt.Errorf("%s: %w", flag, err)
		}
	}
	return parseBytes("--max-bytes", r.MaxBytes)
}

func (r Request) objectMeta() metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}
	if r.Name == "" {
		m.GenerateName = r.Target.Name + "-"
	}
	return m
}

// targetNamespace is empty if it is the namespace of the capture.
func (r Request) targetNamespace() string {
	if r.TargetNamespace == r.Namespace {
		return ""
	}
	return r.TargetNamespace
}

func (r Request) followPods() *bool {
	if !r.NoFollow {
		return nil
	}
	follow := false
	return &follow
}

func nilIfZero(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// parseRotate reads SIZE:FILES. It returns nil for an empty text.
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
