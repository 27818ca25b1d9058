//go:build e2e

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/privilege"
)

// TestSccOfEveryPod: in both settings each Pod of the system runs under the constraints that the table of
// docs/security.md says, and the table has no row too many.
func TestSccOfEveryPod(t *testing.T) {
	table := documentedSCCs(t)
	for _, setting := range []privilege.Setting{privilege.Privileged, privilege.Capabilities} {
		t.Run(string(setting), func(t *testing.T) {
			probePrivilege(t, setting)
			pc := quickCapture(t)
			var pods corev1.PodList
			if err := admin.List(t.Context(), &pods, client.InNamespace(operatorNamespace)); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for i := range pods.Items {
				p := &pods.Items[i]
				if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded {
					continue // of an earlier template
				}
				kind := "manager"
				if p.Labels["monitoring.openshift.tpg/uid"] == string(pc.UID) {
					kind = "agent (probe and keeper)"
				} else if p.Labels["app.kubernetes.io/component"] != "manager" {
					t.Errorf("Pod %s is neither the manager's nor an agent's", p.Name)
				}
				if before, ok := got[kind]; ok && before != p.Annotations[annotationSCC] {
					t.Errorf("Pods of the %s run under %q and %q", kind, before, p.Annotations[annotationSCC])
				}
				got[kind] = p.Annotations[annotationSCC]
			}
			if diff := cmp.Diff(table[string(setting)], got); diff != "" {
				t.Errorf("SCC by Pod (-docs/security.md +cluster):\n%s", diff)
			}
		})
	}
	if len(table) != 2 {
		t.Errorf("docs/security.md has settings %v", table)
	}
}

// documentedSCCs reads the table of docs/security.md: by setting and kind of Pod.
func documentedSCCs(t *testing.T) map[string]map[string]string {
	t.Helper()
	b, err := os.ReadFile("../../docs/security.md")
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
		if table[cells[1]] == nil {
			table[cells[1]] = map[string]string{}
		}
		table[cells[1]][cells[0]] = cells[2]
	}
	return table
}
