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
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// engineClsact leaves its programs attached when the probe is killed. A probe that reported no engine may have used it.
const engineClsact = "clsact"

// planNodeSweep plans a sweep after a killed probe that may have left something in the kernel.
func (planned *plan) planNodeSweep(capture sondev1.Capture, p *podState, v *outcome.Verdict) {
	if e := capture.Common().Engine; !v.Interrupted || e != sondev1.EngineAuto && e != sondev1.EngineBPF {
		return
	}
	if v.Entry.Engine == engineClsact || v.Entry.Engine == "" {
		planned.sweep = append(planned.sweep, p)
	}
}

// sweepNodes creates a sweep Job for each of these probes, before the verdict is written. The Job's name is unique for a probe. A
// failure is only logged: the leftovers are harmless, and the next probe on the Pod removes them.
func (r *Reconciler) sweepNodes(ctx context.Context, capture sondev1.Capture, pods []*podState) {
	if r.Options.Privilege == privilege.Capabilities {
		return // these probes cannot attach at clsact
	}
	errs := inParallel(r.Parallelism, pods, func(p *podState) error { return r.sweepNode(ctx, capture, p) })
	for i, err := range errs {
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Sweeping after a killed probe failed", "Pod", pods[i].before.Name, "node", pods[i].before.Node)
		}
	}
}

func (r *Reconciler) sweepNode(ctx context.Context, capture sondev1.Capture, p *podState) error {
	host, err := r.onHostNetwork(ctx, p)
	if err != nil {
		return err
	}
	if p.pod == nil && p.gone && !host {
		return nil // the network namespace is gone with everything attached to it
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

// onHostNetwork reports whether the Pod uses, or used, its node's network. For a Pod that is gone, the arguments of
// its probe say so.
func (r *Reconciler) onHostNetwork(ctx context.Context, p *podState) (bool, error) {
	if p.pod != nil {
		return p.onNode == kind.FieldHostNetwork, nil
	}
	if p.job == nil {
		return false, nil
	}
	var job batchv1.Job
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Options.Namespace, Name: p.job.GetName()}, &job); err != nil {
		return false, gone.Ignore(err)
	}
	for _, c := range job.Spec.Template.Spec.Containers {
		if c.Name == captureconfig.ContainerProbe && slices.Contains(c.Args, agentjob.FlagHostNetwork) {
			return true, nil
		}
	}
	return false, nil
}
