//go:build e2e

package security

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// sccKinds are the kinds of Pod in the table of docs/security.md, by component label; agents have none.
var sccKinds = map[string]string{
	"":        "agent (probe and keeper; opener and carrier)",
	"manager": "manager, Stowaway",
	"doctor":  "doctor",

	agentjob.ComponentStowaway: "manager, Stowaway",

	"sweep": "sweep (after a probe that left no account)",
}

// In both settings each Pod of the system runs under the SCC in the table of docs/security.md, and the table has no
// other rows.
func TestSccOfEveryPod(t *testing.T) {
	table := documentedSCCs(t)
	for _, setting := range []privilege.Setting{privilege.Privileged, privilege.Capabilities} {
		t.Run(string(setting), func(t *testing.T) {
			cluster.ProbePrivilege(t, setting)
			since, got := time.Now().Truncate(time.Second), map[string]string{}
			pc := quickCapture(t)
			collectSCCs(t, got, "", since)
			sccOfIntercept(t, got, since)
			sccOfDoctor(t, got, cluster.Entry(t, pc, pc.Status.Pods[0].Name).Node, since)
			sccOfSweep(t, got, setting, since)
			if diff := cmp.Diff(table[string(setting)], got); diff != "" {
				t.Errorf("SCC by Pod (-docs/security.md +cluster):\n%s", diff)
			}
		})
	}
	if len(table) != 2 {
		t.Errorf("docs/security.md has settings %v, want both", table)
	}
}

// collectSCCs waits for a Pod of a component and adds the SCCs of all Pods of the operator's namespace to got. It
// counts managers, and Pods created after a point in time.
func collectSCCs(t *testing.T, got map[string]string, component string, since time.Time) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "a Pod of "+sccKinds[component], func(ctx context.Context) error {
		var pods corev1.PodList
		if err := cluster.Admin.List(ctx, &pods, client.InNamespace(cluster.OperatorNamespace)); err != nil {
			return err
		}
		found := false
		for i := range pods.Items {
			p := &pods.Items[i]
			of := p.Labels["app.kubernetes.io/component"]
			if of == "manager" && (p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded) {
				continue // of an earlier template
			}
			if of != "manager" && p.CreationTimestamp.Time.Before(since) {
				continue // of another setting
			}
			kind, ok := sccKinds[of]
			if !ok || of == "" && p.Labels["monitoring.openshift.tpg/uid"] == "" {
				t.Errorf("Pod %s belongs to no kind in docs/security.md", p.Name)
			}
			if before, ok := got[kind]; ok && before != p.Annotations[annotationSCC] {
				t.Errorf("Pods of the %s run under %q and %q, want one SCC", kind, before, p.Annotations[annotationSCC])
			}
			got[kind] = p.Annotations[annotationSCC]
			found = found || of == component
		}
		if !found {
			return errors.New("found no such Pod")
		}
		return nil
	})
}

// sccOfIntercept intercepts a Pod, which uses the SCCs of Stowaway and of an opener with its carrier.
func sccOfIntercept(t *testing.T, got map[string]string, since time.Time) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "web", 1, "serve")
	i := cluster.Intercept(t, ns, "web", 1, "--to", cluster.Laptop(t, "laptop"))
	collectSCCs(t, got, agentjob.ComponentStowaway, since)
	i.Interrupt(t)
	cluster.NoIntercepts(t, time.Minute)
}

// sccOfDoctor examines a node, which uses the doctor's SCC.
func sccOfDoctor(t *testing.T, got map[string]string, node string, since time.Time) {
	t.Helper()
	cmd, out, errOut := cluster.StartPlugin(t, "doctor", node)
	collectSCCs(t, got, "doctor", since)
	if err := cmd.Wait(); err != nil || !strings.HasPrefix(out.String(), node+": Linux ") {
		t.Errorf("%v\n%s\n%s", err, out, errOut)
	}
}

// sccOfSweep deletes the agent of a capture, after which the manager starts a sweep Job. It does so only for privileged
// probes, because others leave nothing behind.
func sccOfSweep(t *testing.T, got map[string]string, setting privilege.Setting, since time.Time) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	pods := cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"})
	loseAgent(t, pc)
	var jobs batchv1.JobList
	if err := cluster.Admin.List(t.Context(), &jobs, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{"app.kubernetes.io/component": "sweep"}); err != nil {
		t.Fatal(err)
	}
	jobs.Items = slices.DeleteFunc(jobs.Items, func(j batchv1.Job) bool { return j.Annotations[sondev1.AnnotationTargetPod] != pods[0].Name })
	if setting == privilege.Capabilities {
		if len(jobs.Items) != 0 {
			t.Errorf("got %d sweep Jobs after a probe that could attach nothing, want none", len(jobs.Items))
		}
		return
	}
	if len(jobs.Items) != 1 {
		t.Fatalf("got %d sweep Jobs, want 1", len(jobs.Items))
	}
	collectSCCs(t, got, "sweep", since)
	cluster.Eventually(t, time.Minute, "swept", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(&jobs.Items[0]), &jobs.Items[0]); err != nil {
			return err
		}
		if s := jobs.Items[0].Status; s.Succeeded != 1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// documentedSCCs reads the table of docs/security.md, by setting and kind of Pod.
func documentedSCCs(t *testing.T) map[string]map[string]string {
	t.Helper()
	b, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(b), "## Which SCC each Pod gets\n")
	if !ok {
		t.Fatal("docs/security.md has no section about SCCs")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	table := map[string]map[string]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.HasPrefix(line, "|") || slices.ContainsFunc(cells, func(c string) bool { return strings.HasPrefix(c, "---") }) {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		if cells[0] == "Pod" {
			continue
		}
		settings := []string{cells[1]}
		if cells[1] == "either" {
			settings = []string{string(privilege.Privileged), string(privilege.Capabilities)}
		}
		for _, setting := range settings {
			if table[setting] == nil {
				table[setting] = map[string]string{}
			}
			table[setting][cells[0]] = cells[2]
		}
	}
	return table
}
