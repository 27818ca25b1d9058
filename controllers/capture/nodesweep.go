package capture

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// engineClsact attaches what stays when its probe is killed. Of a probe that has not said which engine it has, any that it may
// have is taken for it.
const engineClsact = "clsact"

// planSweep has swept after a probe that was killed and may have left something in the kernel.
func (todo *plan) planSweep(capture sondev1.Capture, p *podSeen, v *outcome.Verdict) {
	if e := capture.Common().Engine; !v.Interrupted || e != sondev1.EngineAuto && e != sondev1.EngineBPF {
		return
	}
	if v.Entry.Engine == engineClsact || v.Entry.Engine == "" {
		todo.sweep = append(todo.sweep, p)
	}
}

// sweepAfter makes a Job for each probe that was killed and may have left something. It is made before the verdict is written, once
// for a probe by its name. Where it cannot be made nothing waits for it: what is left does no harm, and the next probe there takes
// it away.
func (r *Reconciler) sweepAfter(ctx context.Context, capture sondev1.Capture, pods []*podSeen) {
	if r.Options.Privilege == privilege.Capabilities {
		return // with which nothing can be attached at clsact
	}
	errs := inParallel(r.Parallelism, pods, func(p *podSeen) error { return r.sweep(ctx, capture, p) })
	for i, err := range errs {
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Sweeping after a killed probe failed", "Pod", pods[i].before.Name, "node", pods[i].before.Node)
		}
	}
}

func (r *Reconciler) sweep(ctx context.Context, capture sondev1.Capture, p *podSeen) error {
	host, err := r.onHostNetwork(ctx, p)
	if err != nil {
		return err
	}
	if p.pod == nil && p.gone && !host {
		return nil // its network namespace is gone, and with it all that was there
	}
	job := agentjob.Sweep(r.Options, capture, agentjob.SweepPlan{
		Name: naming.Sweep(p.uid, capture.GetUID()), TargetNamespace: capture.Common().TargetNamespace, Pod: p.before.Name,
		Node: p.before.Node, UID: p.uid, HostNetwork: host,
	})
	if err := r.Create(ctx, job); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create job %s: %w", job.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Sweeping after a killed probe", "Pod", p.before.Name, "node", p.before.Node, "Job", job.Name)
	return nil
}

// onHostNetwork reports whether the Pod is, or was, on its node's network: then its Job says so.
func (r *Reconciler) onHostNetwork(ctx context.Context, p *podSeen) (bool, error) {
	if p.pod != nil {
		return p.onNode == kind.FieldHostNetwork, nil
	}
	if p.job == nil {
		return false, nil
	}
	var job batchv1.Job
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Options.Namespace, Name: p.job.GetName()}, &job); err != nil {
		return false, sweep.IgnoreGone(err)
	}
	for _, c := range job.Spec.Template.Spec.Containers {
		if c.Name == captureconfig.ContainerProbe && slices.Contains(c.Args, agentjob.FlagHostNetwork) {
			return true, nil
		}
	}
	return false, nil
}
