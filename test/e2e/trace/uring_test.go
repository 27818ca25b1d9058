//go:build e2e

package trace

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
	"github.com/sonde-operator/sonde/test/cluster"
)

// A program uses a file and a connection by an io_uring only, without a system call for any of it: in its own thread, by a
// thread that polls the ring, and by workers of the kernel. Each operation is in the trace. A Pod with the runtime's
// default seccomp profile cannot do this.
func TestTraceOfIOUrings(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	program := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "uring-", Namespace: ns},
		BinaryData: map[string][]byte{"uring": staticProgram(t, "../../../agents/trace/testdata/uring.c")},
	}
	if err := cluster.Admin.Create(t.Context(), program); err != nil {
		t.Fatal(err)
	}
	p := cluster.Pod(t, ns, "ring", withProgram(program.Name, corev1.SeccompProfileTypeUnconfined))
	tr := cluster.Trace(t, cluster.Admin, ns, sondev1.TraceSpec{
		TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: p.Name}, Duration: "5m",
		Events: []sondev1.TraceGroup{sondev1.TraceFile, sondev1.TraceIO, sondev1.TraceNetwork},
	})
	variants := []string{"plain", "sqpoll", "async"}
	for _, variant := range variants {
		if out, err := cluster.Exec(t.Context(), p, "/program/uring", variant, "/dev/shm/"+variant); err != nil {
			t.Fatalf("%s: %v: %s", variant, err, out)
		}
	}
	_, records := filtered(t, tr, p)
	for _, variant := range variants {
		path := "/dev/shm/" + variant
		want := []string{"io_uring_openat", "io_uring_write", "io_uring_read", "io_uring_close"}
		if diff := cmp.Diff(want, callsOn(records, path)); diff != "" {
			t.Errorf("calls on %s (-want +got):\n%s", path, diff)
		}
	}
	counts, containers := map[string]int{}, map[uint32]string{}
	for _, r := range records {
		if r.Call == "io_uring_setup" {
			containers[r.HostPID] = r.Container
		}
		if strings.HasPrefix(r.Call, "io_uring_") && slices.ContainsFunc(r.Args, func(a tracefmt.Arg) bool { return a.Name == "userData" }) {
			counts[r.Call]++
			if made, ok := containers[r.HostPID]; !ok || r.Container != made {
				t.Errorf("%s belongs to container %q and process %d; rings were made by these processes: %v", r.Call, r.Container, r.HostPID, containers)
			}
		}
		if slices.Contains([]string{"openat", "write", "read", "sendto", "recvfrom"}, r.Call) && strings.HasPrefix(string(r.Path), "/dev/shm/") {
			t.Errorf("a call used a file of the test, which only rings use: %s %s", r.Call, r.Path)
		}
	}
	want := map[string]int{"io_uring_openat": 9, "io_uring_write": 3, "io_uring_read": 3, "io_uring_send": 3, "io_uring_recv": 3, "io_uring_close": 3}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}

	confined := cluster.Pod(t, ns, "confined", withProgram(program.Name, corev1.SeccompProfileTypeRuntimeDefault))
	if out, err := cluster.Exec(t.Context(), confined, "/program/uring", "plain", "/dev/shm/plain"); err == nil || !strings.Contains(err.Error(), "io_uring_setup: Operation not permitted") {
		t.Errorf("with the default seccomp profile: %v: %s", err, out)
	}
}

// staticProgram compiles a C program that runs in any container.
func staticProgram(t *testing.T, source string) []byte {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-static", "-s", "-O1", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// withProgram returns the spec of a Pod in which a ConfigMap's programs are at /program.
func withProgram(name string, seccomp corev1.SeccompProfileType) corev1.PodSpec {
	spec, mode := cluster.ShellSpec(), int32(0o755)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: seccomp}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "program", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, DefaultMode: &mode},
	}})
	c := &spec.Containers[0]
	if c.SecurityContext != nil {
		c.SecurityContext.SeccompProfile = nil
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "program", MountPath: "/program"})
	return spec
}

// callsOn returns the successful calls on a file, in their order.
func callsOn(records []*tracefmt.Record, path string) []string {
	var calls []string
	for _, r := range records {
		if string(r.Path) == path && r.Errno == "" {
			calls = append(calls, r.Call)
		}
	}
	return calls
}
