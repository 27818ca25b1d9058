//go:build faults

package faults

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/test/cluster"
)

// TestMatrix injects every fault. SONDE_FAULTS_TABLE=FILE writes the results there as the table of docs/reliability.md.
func TestMatrix(t *testing.T) {
	found := map[string]map[stage]string{}
	awaitOldLogsGone(t)
	before := steadySnapshot(t)
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) { found[r.name] = r.run(t, before) })
	}
	t.Run("logs", awaitOldLogsGone)
	if file := os.Getenv("SONDE_FAULTS_TABLE"); file != "" && len(found) == len(rows) {
		if err := os.WriteFile(file, []byte(table(found)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (r row) run(t *testing.T, before snapshot) map[stage]string {
	t.Helper()
	began := time.Now()
	s := &scene{
		retainFor: r.retainFor, refused: r.refused,
		numbers: map[stage]map[uint32]map[uint64]int{}, dropped: map[stage]uint64{},
	}
	s.makeTargets(t)
	inside := insideTarget(t, s.sink)
	s.makeCaptures(t)
	held := s.bpf(t)
	t.Logf("staged after %s", time.Since(began).Round(time.Second))
	r.fault(t, s)
	s.release(t)
	found := map[stage]string{}
	patience := cmp.Or(r.patience, time.Minute)
	for _, st := range stages {
		c := r.cells[st]
		switch {
		case c.why != "":
			found[st] = "does not occur: " + c.why
		case len(c.want) == 0:
			found[st] = "nothing left"
		default:
			found[st] = s.judge(t, st, c, patience)
			if c.goesOn {
				found[st] = "goes on: " + found[st]
			}
		}
	}
	s.compareNumbers(t, r.targetGone)
	awaitNoBPF(t, held)
	t.Logf("judged after %s", time.Since(began).Round(time.Second))
	s.remove(t, r, inside)
	if r.after != nil {
		r.after(t, s)
	}
	awaitSnapshot(t, before)
	t.Logf("finished after %s", time.Since(began).Round(time.Second))
	return found
}

// remove deletes the captures, compares the target with its state before, and deletes the rest.
func (s *scene) remove(t *testing.T, r row, inside snapshot) {
	t.Helper()
	for _, st := range stages {
		cluster.DeleteNow(t, copyOf(s.captures[st]))
	}
	if !r.targetGone {
		await(t, inside, "the target's namespaces", func() snapshot { return insideTarget(t, s.sink) })
	}
	for _, name := range []string{s.hub, s.ns} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		cluster.DeleteNow(t, ns)
	}
	for _, name := range []string{s.hub, s.ns} {
		cluster.Eventually(t, cleanUp, "namespace deleted", func(ctx context.Context) error {
			err := cluster.Admin.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			if err == nil {
				return fmt.Errorf("namespace %s still exists", name)
			}
			return nil
		})
	}
}

// table returns the results as the table of docs/reliability.md.
func table(found map[string]map[stage]string) string {
	var out strings.Builder
	out.WriteString("| what happens | while the probe starts | while it captures | while it ends | while its file is kept | while a trace runs |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&out, "| %s |", r.name)
		for _, st := range stages {
			fmt.Fprintf(&out, " %s |", found[r.name][st])
		}
		out.WriteString("\n")
	}
	return out.String()
}
