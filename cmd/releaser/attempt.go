package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// attempt is one attempt to make a release.
type attempt struct {
	request *release.Request
	// source returns the files of the chart.
	source  func(context.Context, release.Chart) ([]*archive.BufferedFile, error)
	config  *action.Configuration
	client  *kube.Client
	records *records
	// configMaps of the namespace. The anchor is one.
	configMaps typedcorev1.ConfigMapInterface
	render     *renderer
	// values is the directory of the documents of valuesFrom.
	values string
	// ours: the history of the release is the Collector's.
	ours bool
	// uninstalled: this attempt has removed the release.
	uninstalled bool
}

func newAttempt(q *release.Request, flags *genericclioptions.ConfigFlags) (*attempt, error) {
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.Default().Handler()))
	if err := config.Init(flags, q.Namespace, "memory"); err != nil { // the storage is set below
		return nil, fmt.Errorf("start Helm: %w", err)
	}
	client, ok := config.KubeClient.(*kube.Client)
	if !ok {
		return nil, fmt.Errorf("start Helm: its client is a %T", config.KubeClient)
	}
	client.Namespace = q.Namespace
	set, err := client.Factory.KubernetesClientSet()
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	mapper, err := flags.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	kube.ManagedFieldsManager = fieldManager
	owned := &records{SecretInterface: set.CoreV1().Secrets(q.Namespace), owner: ownerOf(q.Anchor)}
	config.Releases = storage.Init(driver.NewSecrets(owned))
	config.Releases.MaxHistory = release.MaxHistory
	return &attempt{
		request: q, source: sources[q.Chart.Source], config: config, client: client, records: owned, configMaps: set.CoreV1().ConfigMaps(q.Namespace), values: release.ValuesPath,
		render: &renderer{release: q.Release, namespace: q.Namespace, owner: ownerOf(q.Anchor), mapper: mapper},
	}, nil
}

// fieldManager of the release's objects.
const fieldManager = "sonde-releaser"

// make installs, upgrades or repairs the release as requested, and reports the result.
func (a *attempt) make(ctx context.Context) release.Report {
	report := a.bring(ctx)
	a.describe(&report)
	return report
}

func (a *attempt) bring(ctx context.Context) release.Report {
	hideSecrets(a.request, a.values) // also in the errors of a remedy, which needs no values
	if err := a.records.check(ctx, a.request.Release); err != nil {
		return failed(err)
	}
	a.ours = true
	if err := a.interrupted(); err != nil {
		return failedRelease(ctx, err) // an uninstallation may have deleted some objects
	}
	history, err := a.history()
	if err != nil {
		return failed(err)
	}
	if a.request.Remedy != "" {
		return a.remedy(ctx, history)
	}
	in, err := a.read(ctx)
	if err != nil {
		return failed(err)
	}
	if n := len(history); n > 0 && isUpToDate(history[n-1], in) {
		return a.upToDate(ctx, in, history)
	}
	if err := a.dryRun(ctx, in, history); err != nil {
		return failed(err)
	}
	if err = a.act(ctx, in, history); err == nil {
		err = a.verify(in)
	}
	if err == nil {
		return a.success(release.ReasonReleased, asSpec, history)
	}
	report := failedRelease(ctx, err)
	if err := a.prune(history); err != nil {
		report.Message += "; and objects of earlier attempts are left: " + err.Error()
	}
	return report
}

// upToDate looks at the objects of a release that is as requested, and repairs them, as far as that is requested.
func (a *attempt) upToDate(ctx context.Context, in *input, history []*helmrelease.Release) release.Report {
	earlier, last := history[:len(history)-1], history[len(history)-1]
	if a.request.Drift == "" {
		return a.success(release.ReasonUpToDate, wereReady, earlier)
	}
	drifted, err := a.drifted(last)
	if err != nil {
		return failed(err)
	}
	switch blocked := drifted.blocked(); {
	case blocked+len(drifted.repairable) == 0:
		return a.success(release.ReasonUpToDate, wereReady, earlier) // a look compares objects, and reads no status
	case blocked > 0 || a.request.Drift == release.DriftWarn: // a failed revision would end all further repairs
		return release.Report{Outcome: release.Ready, Reason: release.ReasonDrifted, Message: drifted.warning(a.request.Drift)}
	}
	if err = a.act(ctx, in, history); err == nil {
		err = a.verify(in)
	}
	if err != nil {
		return failedRelease(ctx, err) // not rolled back: the last revision has the same objects
	}
	return a.success(release.ReasonDriftRepaired, "others had changed the release, and it is as the chart says again: "+drifted.String(), earlier)
}

// isUpToDate reports whether the last revision was made of the same chart and values, and became ready. A rollback is not awaited.
func isUpToDate(last *helmrelease.Release, in *input) bool {
	return last.Info.Status == common.StatusDeployed && last.Info.RollbackRevision == 0 && last.Labels[labelInput] == in.hash
}

// asSpec is the message of a release that was just made, and wereReady of one that was only looked at.
const (
	asSpec    = "the release is as the spec says, and its objects are ready"
	wereReady = "the release is as the spec says, and its objects were ready when it was made"
)

// success is the report of a release that is as requested. Objects of earlier revisions that could not be deleted change nothing of that.
func (a *attempt) success(reason, message string, earlier []*helmrelease.Release) release.Report {
	r := release.Report{Outcome: release.Ready, Reason: reason, Message: message}
	if err := a.prune(earlier); err != nil {
		r.Message += "; but objects that it does not have any more are left: " + err.Error()
	}
	return r
}

// verify reads whether Helm has stored that the revision is deployed: it only logs when it cannot.
func (a *attempt) verify(in *input) error {
	history, err := a.history()
	if err != nil {
		return err
	}
	if n := len(history); n == 0 || !isUpToDate(history[n-1], in) {
		return &problem{reason: release.ReasonUnavailable, retry: true, uncounted: true, text: "the release is made, but Helm could not store that"}
	}
	return nil
}

// history returns the revisions of the release, the oldest first.
func (a *attempt) history() ([]*helmrelease.Release, error) {
	all, err := a.config.Releases.History(a.request.Release)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the history of the release: %w", err)
	}
	var revisions []*helmrelease.Release
	for _, r := range all {
		if r, ok := r.(*helmrelease.Release); ok {
			revisions = append(revisions, r)
		}
	}
	slices.SortFunc(revisions, func(a, b *helmrelease.Release) int { return a.Version - b.Version })
	return revisions, nil
}

// interrupted completes what a releaser has left that was killed: Helm refuses to touch a revision that is pending, or half uninstalled.
// The manager starts no releaser before the last one has ended.
func (a *attempt) interrupted() error {
	history, err := a.history()
	if err != nil {
		return err
	}
	for _, r := range history {
		switch {
		case r.Info.Status == common.StatusUninstalling:
			return a.uninstall()
		case r.Info.Status.IsPending():
			r.SetStatus(common.StatusFailed, "the releaser was interrupted")
			if err := a.config.Releases.Update(r); err != nil {
				return fmt.Errorf("mark revision %d as failed: %w", r.Version, err)
			}
		}
	}
	return errors.Join(a.forgetFailedRollbacks(history), a.supersede(history))
}

// supersede leaves only the newest deployed revision as deployed. Helm only logs an error of the write that marks the one before.
func (a *attempt) supersede(history []*helmrelease.Release) error {
	newest := true
	for _, r := range slices.Backward(history) {
		if r.Info.Status != common.StatusDeployed {
			continue
		}
		if !newest {
			r.SetStatus(common.StatusSuperseded, "a later revision is deployed")
			if err := a.config.Releases.Update(r); err != nil {
				return fmt.Errorf("mark revision %d as superseded: %w", r.Version, err)
			}
		}
		newest = false
	}
	return nil
}

// forgetFailedRollbacks makes the failed upgrade the newest revision again, after its rollback has failed, too. Helm marks the upgrade as
// superseded, as if its objects had been ready, and compares the next rollback with the failed one. That would leave the objects that only the
// upgrade has. If no revision is deployed, the rollback's record stays, because Helm compares the next upgrade with it.
func (a *attempt) forgetFailedRollbacks(history []*helmrelease.Release) error {
	hasDeployed := slices.ContainsFunc(history, func(r *helmrelease.Release) bool { return r.Info.Status == common.StatusDeployed })
	for i, r := range slices.Backward(history) {
		if i == 0 || r.Info.RollbackRevision == 0 || r.Info.Status != common.StatusFailed {
			continue
		}
		before := history[i-1]
		if before.Info.Status == common.StatusSuperseded {
			before.SetStatus(common.StatusFailed, "its rollback failed")
			if err := a.config.Releases.Update(before); err != nil {
				return fmt.Errorf("mark revision %d as failed: %w", before.Version, err)
			}
		}
		if hasDeployed && before.Info.Status == common.StatusFailed {
			if _, err := a.config.Releases.Delete(r.Name, r.Version); err != nil {
				return fmt.Errorf("forget the failed rollback %d: %w", r.Version, err)
			}
		}
	}
	return nil
}

// act installs or upgrades, and waits until the objects are ready.
func (a *attempt) act(ctx context.Context, in *input, history []*helmrelease.Release) error {
	chart, err := in.chart()
	if err != nil {
		return err
	}
	if len(history) == 0 {
		_, err = a.newInstall(in).RunWithContext(ctx, chart, in.values)
		return err
	}
	_, err = a.newUpgrade(in, history).RunWithContext(ctx, a.request.Release, chart, in.values)
	return err
}

func (a *attempt) newInstall(in *input) *action.Install {
	i := action.NewInstall(a.config)
	i.ReleaseName, i.Namespace = a.request.Release, a.request.Namespace
	i.Timeout = time.Duration(a.request.Install) * time.Second
	i.WaitStrategy, i.PostRenderer = kube.StatusWatcherStrategy, a.render
	i.SkipSchemaValidation = true // read has done it
	i.ForceConflicts = true       // a volume that stayed may have been changed by hand
	i.Labels = in.labels()
	return i
}

// newUpgrade upgrades to the input. For Helm this is also a further attempt to install.
func (a *attempt) newUpgrade(in *input, history []*helmrelease.Release) *action.Upgrade {
	u := action.NewUpgrade(a.config)
	u.Namespace = a.request.Namespace
	u.Timeout = time.Duration(a.request.Upgrade) * time.Second
	if deployed(history) == nil {
		u.Timeout = time.Duration(a.request.Install) * time.Second
	}
	u.WaitStrategy, u.PostRenderer = kube.StatusWatcherStrategy, a.render
	u.SkipSchemaValidation, u.ResetValues = true, true
	u.MaxHistory = release.MaxHistory
	// The chart wins over changes by hand.
	u.ServerSideApply, u.ForceConflicts = "true", true
	u.Labels = in.labels()
	return u
}

// remedy makes a release good whose attempts are spent. Killed at any moment, it can be repeated.
func (a *attempt) remedy(ctx context.Context, history []*helmrelease.Release) release.Report {
	n := len(history)
	if n == 0 || history[n-1].Info.Status == common.StatusDeployed {
		report := release.Report{Outcome: release.Stalled, Reason: release.ReasonUpToDate, Message: "no attempt has changed the release"}
		switch { // an earlier remedy that was killed, or whose report was lost
		case a.uninstalled:
			report.Remediated = release.Uninstalled
		case n > 0 && history[n-1].Info.RollbackRevision > 0:
			if err := a.prune(history[:n-1]); err != nil { // in which the earlier remedy may have failed
				return failedRelease(ctx, err)
			}
			report.Remediated = release.RolledBack
		}
		return report
	}
	report := release.Report{Outcome: release.Stalled, Reason: release.ReasonNotReady}
	var err error
	if last := deployed(history); last != nil && a.request.Remedy == release.Rollback {
		report.Remediated, report.Message = release.RolledBack, "rolled back"
		if err = a.rollBack(last.Version); err == nil {
			err = a.prune(history)
		}
	} else {
		report.Remediated, report.Message = release.Uninstalled, "uninstalled"
		for _, r := range history[:n-1] { // Helm deletes the objects of the last revision only
			err = errors.Join(err, a.render.deleteOthers(a.client, r.Manifest, history[n-1].Manifest))
		}
		if err == nil {
			err = a.uninstall()
		}
	}
	if err != nil {
		return failedRelease(ctx, err)
	}
	return report
}

// deployed returns the last revision whose objects were ready, or nil. Without one that is deployed this is one that another superseded.
func deployed(history []*helmrelease.Release) *helmrelease.Release {
	for _, status := range []common.Status{common.StatusDeployed, common.StatusSuperseded} {
		for _, r := range slices.Backward(history) {
			if r.Info.Status == status {
				return r
			}
		}
	}
	return nil
}

func (a *attempt) rollBack(revision int) error {
	// The deadline of the Job leaves time for it.
	r := action.NewRollback(a.config)
	r.Version, r.MaxHistory, r.DisableHooks = revision, release.MaxHistory, a.request.SkipHooks
	r.ServerSideApply, r.ForceConflicts = "true", true
	r.WaitStrategy = kube.HookOnlyStrategy // it was ready once, and nothing follows that needs it ready
	r.Timeout = remediationTime
	return r.Run(a.request.Release)
}

func (a *attempt) uninstall() error {
	u := action.NewUninstall(a.config)
	u.WaitStrategy, u.Timeout = kube.HookOnlyStrategy, remediationTime
	u.DisableHooks = a.request.SkipHooks
	_, err := u.Run(a.request.Release)
	if isNotFound(err) { // Helm's own IgnoreNotFound ignores every error of the read
		err = nil
	}
	a.uninstalled = err == nil
	return err
}

// remediationTime bounds the hooks of a rollback or an uninstall.
const remediationTime = time.Minute

// prune deletes the objects that failed revisions and the last deployed one have left, and that neither the newest nor the deployed revision
// has. Helm compares with the deployed revision alone, and skips each object of it that it cannot read, without an error. before are the
// revisions from before this attempt: Helm forgets those beyond MaxHistory.
func (a *attempt) prune(before []*helmrelease.Release) error {
	now, err := a.history()
	if err != nil || len(now) == 0 {
		return err
	}
	kept := withHooks(now[len(now)-1])
	if last := deployed(now); last != nil && last.Version != now[len(now)-1].Version {
		kept += "\n---\n" + withHooks(last)
	}
	for _, r := range slices.Backward(before) {
		if err := a.render.deleteOthers(a.client, r.Manifest, kept); err != nil {
			return fmt.Errorf("delete the objects of revision %d: %w", r.Version, err)
		}
		if r.Info.Status == common.StatusDeployed || r.Info.Status == common.StatusSuperseded {
			break
		}
	}
	return nil
}

// withHooks returns the manifest of a revision with its hooks. The anchor owns hooks, too, and a hook may have the name of an object that an
// earlier revision had.
func withHooks(r *helmrelease.Release) string {
	all := []string{r.Manifest}
	for _, h := range r.Hooks {
		all = append(all, h.Manifest)
	}
	return strings.Join(all, "\n---\n")
}

// describe adds what Helm has stored to a report.
func (a *attempt) describe(report *release.Report) {
	if !a.ours {
		return
	}
	history, err := a.history()
	if err != nil {
		return // the report without it is still right
	}
	for _, r := range slices.Backward(history) {
		revision := release.Revision{Revision: r.Version, Status: r.Info.Status.String(), Unix: r.Info.LastDeployed.Unix()}
		if r.Chart != nil && r.Chart.Metadata != nil {
			revision.ChartVersion = r.Chart.Metadata.Version
		}
		if r.Info.Status == common.StatusDeployed && report.Revision == 0 {
			report.Revision, report.ChartVersion = revision.Revision, revision.ChartVersion
		}
		report.History = append(report.History, revision)
	}
}
