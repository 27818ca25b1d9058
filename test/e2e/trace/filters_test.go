//go:build e2e

package trace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// One Pod with two containers is traced three times at once: one container, one command with its children, and one
// command alone. Each trace holds what was asked for, and nothing else.
func TestTraceFilters(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	spec := cluster.ShellSpec()
	side := *spec.Containers[0].DeepCopy()
	side.Name = "side"
	spec.Containers = append(spec.Containers, side)
	p := cluster.Pod(t, ns, "two", spec)
	of := func(change func(*sondev1.TraceSpec)) *sondev1.Trace {
		s := sondev1.TraceSpec{
			TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: p.Name}, Duration: "5m",
			Events: []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceFile},
		}
		change(&s)
		return cluster.Trace(t, cluster.Admin, ns, s)
	}
	container := of(func(s *sondev1.TraceSpec) { s.Containers = []string{"c", "absent"} })
	children := of(func(s *sondev1.TraceSpec) { s.Command, s.Children = "sh", true })
	alone := of(func(s *sondev1.TraceSpec) { s.Command = "cat" })
	wantAnnotations(t, container, "c,absent", "*")
	wantAnnotations(t, children, "*", "sh")

	for _, run := range []struct {
		container string
		command   []string
	}{
		{"c", []string{"sh", "-c", "/bin/cat /etc/hostname; true"}},
		{"c", []string{"cat", "/etc/hosts"}},
		{"side", []string{"sh", "-c", "/bin/cat /etc/resolv.conf; true"}},
	} {
		if out, err := cluster.ExecAs(t.Context(), cluster.Config, p, "exec", run.container, run.command...); err != nil {
			t.Fatalf("%v in %s: %v: %s", run.command, run.container, err, out)
		}
	}

	header, records := filtered(t, container, p)
	if diff := cmp.Diff([]string{"/etc/hostname", "/etc/hosts"}, opened(records)); diff != "" {
		t.Errorf("container c (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(records, func(r *tracefmt.Record) bool { return r.Container != "c" }) {
		t.Error("container c: found records of other containers")
	}
	if diff := cmp.Diff([]string{"c", "absent"}, header.Containers); diff != "" {
		t.Errorf("the header's containers (-want +got):\n%s", diff)
	}
	e := cluster.Entry(t, container, p.Name)
	if diff := cmp.Diff([]string{"absent"}, e.ContainersNotFound); diff != "" {
		t.Errorf("missing containers (-want +got):\n%s", diff)
	}

	header, records = filtered(t, children, p)
	if diff := cmp.Diff([]string{"/etc/hostname", "/etc/resolv.conf"}, opened(records)); diff != "" || header.Command != "sh" || !header.Children {
		t.Errorf("children of sh: header %+v, opened (-want +got):\n%s", header, diff)
	}
	_, records = filtered(t, alone, p)
	if diff := cmp.Diff([]string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"}, opened(records)); diff != "" {
		t.Errorf("cat alone, opened (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(records, func(r *tracefmt.Record) bool { return string(r.Comm) != "cat" }) {
		t.Error("cat alone: found records of other commands")
	}
}

// wantAnnotations checks the annotations of the trace's Job, which name the traced container and command.
func wantAnnotations(t *testing.T, tr *sondev1.Trace, container, command string) {
	t.Helper()
	var jobs batchv1.JobList
	if err := cluster.Admin.List(t.Context(), &jobs, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(tr.UID)}); err != nil || len(jobs.Items) != 1 {
		t.Fatalf("got %d Jobs, want 1 (%v)", len(jobs.Items), err)
	}
	for _, a := range []map[string]string{jobs.Items[0].Annotations, jobs.Items[0].Spec.Template.Annotations} {
		if a[sondev1.AnnotationTargetContainer] != container || a[sondev1.AnnotationTargetCommand] != command {
			t.Errorf("annotations %v, want container %s and command %s", a, container, command)
		}
	}
}

// filtered stops a trace of one Pod and returns the contents of its file. Nothing may be lost.
func filtered(t *testing.T, tr *sondev1.Trace, p *corev1.Pod) (*tracefmt.Header, []*tracefmt.Record) {
	t.Helper()
	cluster.Stop(t, tr)
	e := cluster.Entry(t, tr, p.Name)
	if tr.Status.Phase != sondev1.PhaseCompleted || e.LostEvents() > 0 || len(e.Files) != 1 {
		t.Fatalf("phase %s, entry %+v; want Completed, one file and no losses", tr.Status.Phase, e)
	}
	header, records, _ := cluster.ReadTrace(t, cluster.ResultFile(t, tr, cluster.GrantResults(t, cluster.Admin, tr), &e))
	if header == nil {
		t.Fatal("the file has no header")
	}
	return header, records
}

// opened returns the paths of the test's files that the records open.
func opened(records []*tracefmt.Record) []string {
	var paths []string
	for _, r := range records {
		path := string(r.Path)
		if strings.HasPrefix(r.Call, "open") && r.Ret >= 0 && string(r.Comm) == "cat" && slices.Contains([]string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"}, path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// forgeMounts removes the mount with the container's name, and makes one with the name of container side.
const forgeMounts = `umount /dev/termination-log && cd /dev/shm && mkdir -p pods/x/containers/side &&
touch pods/x/containers/side/y && mount -o bind pods/x/containers/side/y pods/x/containers/side/y && exec sleep 3600`

// A container cannot hide from a trace of it by mounts that show another container's name.
func TestTraceForgedContainer(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	spec := cluster.ShellSpec()
	side := *spec.Containers[0].DeepCopy()
	side.Name = "side"
	c := &spec.Containers[0]
	c.Command = []string{"sh", "-c", forgeMounts}
	c.SecurityContext = &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0)), RunAsNonRoot: new(false)}
	spec.Containers = append(spec.Containers, side)
	p := cluster.Pod(t, ns, "forged", spec)
	in := func(container string, command ...string) string {
		out, err := cluster.ExecAs(t.Context(), cluster.Config, p, "exec", container, command...)
		if err != nil {
			t.Fatalf("%v in %s: %v: %s", command, container, err, out)
		}
		return out
	}
	// The control: the container's mounts have the other's name alone.
	cluster.Eventually(t, time.Minute, "the forged mount", func(context.Context) error {
		if mounts := in("c", "cat", "/proc/1/mountinfo"); !strings.Contains(mounts, "/pods/x/containers/side/") || strings.Contains(mounts, "/containers/c/") {
			return fmt.Errorf("mounts %s", mounts)
		}
		return nil
	})
	of := func(container string) *sondev1.Trace {
		return cluster.Trace(t, cluster.Admin, ns, sondev1.TraceSpec{
			TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: p.Name}, Duration: "5m",
			Events: []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceFile}, Containers: []string{container},
		})
	}
	forger, other := of("c"), of("side")
	in("c", "cat", "/etc/hostname")
	in("side", "cat", "/etc/hosts")
	for container, tc := range map[string]struct {
		trace *sondev1.Trace
		want  string
	}{
		"c":    {forger, "/etc/hostname"},
		"side": {other, "/etc/hosts"},
	} {
		_, records := filtered(t, tc.trace, p)
		if diff := cmp.Diff([]string{tc.want}, opened(records)); diff != "" {
			t.Errorf("container %s (-want +got):\n%s", container, diff)
		}
		if slices.ContainsFunc(records, func(r *tracefmt.Record) bool { return r.Container != container }) {
			t.Errorf("container %s: found records of other containers", container)
		}
	}
}

// A Pod without any of the named containers is not traced, and its entry lists the containers that it has.
func TestTraceOfNoContainer(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	p := cluster.Pod(t, ns, "one", cluster.PodSpec("idle"))
	tr := &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "none-", Namespace: ns},
		Spec:       sondev1.TraceSpec{TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: p.Name}, Duration: "5m", Containers: []string{"web"}},
	}
	if err := cluster.Admin.Create(t.Context(), tr); err != nil {
		t.Fatal(err)
	}
	cluster.AwaitFinal(t, tr, time.Minute)
	e := cluster.Entry(t, tr, p.Name)
	if tr.Status.Phase != sondev1.PhaseFailed || e.Reason != sondev1.ReasonContainerNotFound || !strings.Contains(e.Message, "it has c") {
		t.Errorf("phase %s, entry %+v; want Failed, ContainerNotFound and the Pod's containers", tr.Status.Phase, e)
	}
	cluster.DeleteNow(t, tr)
	cluster.NothingLeft(t, string(tr.UID))
}
