package intercept

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/sealed"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/duration"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// observation is everything that one pass reads.
type observation struct {
	requests []*request
	// failed are the errors of requests that could not be read. The others go on.
	failed error
	// carriers by the UID of their target Pod.
	carriers map[types.UID]*carrier
	// leftover has the targets of agents' Pods that run without a Job: it was deleted in the background, and its Pod has not ended.
	leftover map[types.UID]bool
	// failures is how often in a row the carrier of a Pod has failed before.
	failures map[types.UID]int
	// nodes that were read, in this pass or an earlier one.
	nodes map[string]nodeReading
	// secrets of carriers without a Job, by name, with the UID of their target Pod.
	secrets map[string]types.UID
	// stowaway is what exists of it.
	stowaway stowawayObjects
	// status is Stowaway's answer; nil if it gave none.
	status *tunnel.Status
}

// request is one InterceptRequest.
type request struct {
	*sondev1.InterceptRequest
	// expires is when it ends.
	expires time.Time
	// refusal is the reason why it may never run again, with a message; empty if it may run.
	refusal, message string
	// recorded is the phase in the last Event and audit record.
	recorded sondev1.InterceptPhase
	// written is when this manager last wrote the status.
	written time.Time
	// readError says why rights or target could not be read in this pass. Then the reading is an earlier pass's.
	readError string
	// replaced reports that the cache has another namespace than the stamp, or none, and the API server did not confirm that.
	replaced bool
	reading
}

// reading is what a pass reads for a request, and when.
type reading struct {
	at          time.Time
	pods        []*slim.Pod
	targetFound bool
	// left is when this manager last saw a Pod in the target, by UID, for Pods that leave it with their owner.
	left map[types.UID]time.Time
	// requester is the name of who asked, by the webhook's stamp.
	requester string
	// namespaceUID is the UID that the target's namespace had when the request was made. The stamp has it. It is empty if the stamp could
	// not be verified.
	namespaceUID types.UID
}

// workload names a target.
type workload struct {
	namespace string
	ref       sondev1.TargetReference
}

// maxReadingAge is how long the reading of an earlier pass is used.
const maxReadingAge = 2 * time.Minute

// carrier is the Job of one Pod.
type carrier struct {
	job *slim.Job
	// agent is its Pod; nil if there is none.
	agent *slim.Pod
	// hasSecret reports that its Secret exists.
	hasSecret bool
}

// target returns the UID of the carrier's Pod.
func (c *carrier) target() types.UID { return types.UID(c.job.GetLabels()[sondev1.LabelTargetPodUID]) }

// namespace of the carrier's Pod.
func (c *carrier) namespace() string {
	pod, _ := naming.ParseOwner(c.job.GetAnnotations()[sondev1.AnnotationOwner])
	return pod.Namespace
}

// key is the public key that the carrier authenticates with.
func (c *carrier) key() tunnel.PublicKey {
	return tunnel.PublicKey(c.job.GetAnnotations()[sondev1.AnnotationCarrierKey])
}

// stuck reports whether the carrier cannot start, because its Secret is missing.
func (c *carrier) stuck(now time.Time) bool {
	started := c.agent != nil && c.agent.Phase() != corev1.PodPending
	return !c.hasSecret && !started && now.Sub(c.job.GetCreationTimestamp().Time) > stuckAfter
}

// stuckAfter is longer than the cache of Secrets lags behind the one of Jobs.
const stuckAfter = 30 * time.Second

// outdated reports whether the carrier has no key, or was made for a Stowaway with another key or address, to which it cannot connect.
func (c *carrier) outdated(s *stowawayObjects) bool {
	return c.key() == "" || s.secret && s.service && c.job.GetLabels()[sondev1.LabelStowaway] != agentjob.StowawayID(s.key, s.address)
}

// ended reports whether the Job or one of its two containers has ended. Each is useless without the other.
func (c *carrier) ended() bool {
	if c.agent != nil {
		for _, s := range c.agent.Expand().Status.ContainerStatuses {
			if s.State.Terminated != nil {
				return true
			}
		}
	}
	for _, condition := range c.job.Expand().Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// stowawayObjects are the parts of Stowaway that exist.
type stowawayObjects struct {
	deployment, service, secret bool
	// unreadable reports that there is a Secret that was sealed with an earlier key of the manager.
	unreadable bool
	namespace  string
	// address of the peer port; zero without a Service.
	address string
	// key of Stowaway and of the manager; empty without a Secret.
	key, managerKey tunnel.PublicKey
	manager         *tunnel.Identity
	// waiting says why its Pod is not ready.
	waiting string
	// old reports that an earlier pass has read these, because the API server did not answer this one.
	old bool
}

// exist reports whether a part of Stowaway is there.
func (s *stowawayObjects) exist() bool { return s.deployment || s.service || s.secret || s.unreadable }

func (r *Reconciler) observe(ctx context.Context) (*observation, error) {
	o := &observation{carriers: map[types.UID]*carrier{}, leftover: map[types.UID]bool{}, failures: r.memory.failures, secrets: map[string]types.UID{}}
	var list sondev1.InterceptRequestList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // most of them may have ended
		return nil, wrap("list InterceptRequests", err)
	}
	now := r.Clock.Now()
	if r.began.IsZero() {
		r.began = now
	}
	resolved := map[workload]target.Workload{} // many requests may have one target, which may have thousands of Pods
	for i := range list.Items {
		if list.Items[i].Ended() || !list.Items[i].DeletionTimestamp.IsZero() {
			continue
		}
		q := &request{InterceptRequest: list.Items[i].DeepCopy()}
		q.at = now
		if err := r.observeRequest(ctx, q, resolved); err != nil {
			o.failed = errors.Join(o.failed, fmt.Errorf("InterceptRequest %s/%s: %w", q.Namespace, q.Name, err))
			q.readError, q.reading = err.Error(), r.lastReading(ctx, q, resolved)
			if q.replaced || now.Sub(q.at) > maxReadingAge {
				q.pods = nil // they may be of another namespace, or, for example, the right has not been reviewed for so long
			}
		}
		o.requests = append(o.requests, q)
	}
	r.forgetNodes(resolved)
	o.nodes = r.memory.nodes
	if err := r.observeCarriers(ctx, o); err != nil {
		return nil, err
	}
	if err := r.observeStowaway(ctx, o); err != nil {
		return nil, err
	}
	return o, nil
}

// lastReading returns what was last read for a request that cannot be read now. If this manager has read nothing of it, that is what the
// one before has left in the status, as if it had been read when this manager began, or when the one before could no longer read it:
// restarts do not prolong an intercept whose right cannot be reviewed. A namespace that was made anew has Pods with other UIDs.
func (r *Reconciler) lastReading(ctx context.Context, q *request, resolved map[workload]target.Workload) reading {
	if before := r.previous[q.UID]; before != nil {
		return before.reading
	}
	last := reading{at: r.began, requester: q.requester, namespaceUID: q.namespaceUID}
	admitted := apimeta.FindStatusCondition(q.Status.Conditions, sondev1.ConditionAdmitted)
	if admitted != nil && admitted.Status == metav1.ConditionUnknown && admitted.LastTransitionTime.Time.Before(last.at) {
		last.at = admitted.LastTransitionTime.Time
	}
	known := map[types.UID]bool{}
	for i := range q.Status.Pods {
		known[types.UID(q.Status.Pods[i].UID)] = true
	}
	if len(known) == 0 {
		return last
	}
	found, err := r.resolve(ctx, q, resolved)
	if err != nil {
		return last // without Pods, because the target cannot be read either
	}
	last.targetFound = found.Found
	for _, pod := range slices.Concat(found.Pods, found.Former) {
		if known[pod.GetUID()] {
			last.pods = append(last.pods, pod)
		}
	}
	return last
}

// resolve reads the target of a request, once in a pass.
func (r *Reconciler) resolve(ctx context.Context, q *request, resolved map[workload]target.Workload) (target.Workload, error) {
	namespace, ref := q.AgentTarget()
	found, ok := resolved[workload{namespace, ref}]
	if ok {
		return found, nil
	}
	found, err := target.ResolveCached(ctx, r.Client, namespace, ref)
	if err == nil {
		resolved[workload{namespace, ref}] = found
	}
	return found, err
}

func (r *Reconciler) observeRequest(ctx context.Context, q *request, resolved map[workload]target.Workload) error {
	after, err := duration.Parse(q.Spec.ExpiresAfter)
	if err != nil {
		return fmt.Errorf("spec.expiresAfter: %w", err)
	}
	q.expires = q.CreationTimestamp.Add(after)
	if err := r.admit(ctx, q); err != nil || q.refusal != "" {
		return err
	}
	found, err := r.resolve(ctx, q, resolved)
	if err != nil {
		return err
	}
	r.usePods(ctx, q, &found)
	return nil
}

// leaveDelay is how long a Pod whose owner is gone keeps its carrier although the cache does not say that it is being deleted: the garbage
// collector may be slow.
const leaveDelay = 5 * time.Second

// usePods sets the Pods of a request. A Pod that ends may outlive its ReplicaSet, or the whole target. If the request had such a Pod, it
// still does: without its carrier, the Pod would lose the connections that its app still serves.
func (r *Reconciler) usePods(ctx context.Context, q *request, found *target.Workload) {
	q.targetFound, q.pods = found.Found, slices.Clip(found.Pods) // other requests may have the same
	entries, last := q.Status.Pods, r.previous[q.UID]
	if last != nil {
		entries = last.Status.Pods
	}
	had := map[types.UID]bool{}
	for i := range entries {
		if entries[i].Job != "" {
			had[types.UID(entries[i].UID)] = true
		}
	}
	for _, pod := range found.Pods {
		delete(had, pod.GetUID())
	}
	for _, pod := range found.Former {
		if had[pod.GetUID()] {
			q.pods = append(q.pods, pod)
			delete(had, pod.GetUID())
		}
	}
	if last == nil {
		return
	}
	for _, pod := range last.pods {
		since, leaving := last.left[pod.GetUID()]
		if !leaving {
			since = last.at
		}
		if !had[pod.GetUID()] || q.at.Sub(since) >= leaveDelay {
			continue
		}
		if now := r.outlives(ctx, pod); now != nil {
			if q.left == nil {
				q.left = map[types.UID]time.Time{}
			}
			q.pods, q.left[pod.GetUID()] = append(q.pods, now), since
		}
	}
}

// outlives returns the Pod as the cache has it if it still runs and has the same owner. Someone may have taken it out of its workload.
func (r *Reconciler) outlives(ctx context.Context, pod *slim.Pod) *slim.Pod {
	var now corev1.Pod
	err := r.Get(ctx, client.ObjectKey{Namespace: pod.GetNamespace(), Name: pod.GetName()}, &now)
	if err != nil || now.UID != pod.GetUID() || !target.Live(&now) {
		return nil
	}
	was, is := metav1.GetControllerOfNoCopy(pod), metav1.GetControllerOfNoCopy(&now)
	if was == nil || is == nil || was.UID != is.UID {
		return nil
	}
	return target.SlimPod(&now)
}

// admit repeats the checks of the webhook, and reviews the requester's right.
func (r *Reconciler) admit(ctx context.Context, q *request) error {
	claim, err := r.verify(q.InterceptRequest)
	switch {
	case errors.Is(err, stamp.ErrMissing), errors.Is(err, stamp.ErrInvalid):
		q.refuse(sondev1.ReasonNotAdmitted, err.Error())
		return nil
	case err != nil:
		return wrap("verify stamp", err)
	}
	q.requester, q.namespaceUID = claim.Requester.Username, types.UID(claim.TargetNamespaceUID)
	paused, err := pause.Requested(ctx, r.PauseConfig, r.Options.Namespace)
	if err != nil {
		return err
	}
	if paused {
		q.refuse(sondev1.ReasonPaused, pause.Message(r.Options.Namespace, sondev1.InterceptKind))
		return nil
	}
	if err := r.checkNamespaces(ctx, q, claim); err != nil || q.refusal != "" {
		return err
	}
	namespace, _ := q.AgentTarget()
	return r.review(ctx, q, claim.Requester, namespace)
}

func (r *Reconciler) review(ctx context.Context, q *request, who access.Requester, namespace string) error {
	reviews := r.Recent
	if q.Status.Phase == "" {
		reviews = r.Access // before the first Job
	}
	decision, err := reviews.ReviewPods(ctx, sondev1.VerbIntercept, who, namespace)
	if err == nil && !decision.Allowed {
		decision, err = r.Access.ReviewPods(ctx, sondev1.VerbIntercept, who, namespace) // a refusal is final, so it may not be an old one
	}
	if err != nil {
		return err
	}
	if !decision.Allowed {
		q.refuse(sondev1.ReasonAccessRevoked, decision.Reason)
	}
	return nil
}

// refuse records why the request may not run, which it never may again.
func (q *request) refuse(reason, message string) {
	q.refusal, q.message = reason, message
}

func (r *Reconciler) checkNamespaces(ctx context.Context, q *request, claim stamp.Claim) error {
	name, _ := q.AgentTarget()
	ns, err := r.namespace(ctx, r.Client, name)
	if err != nil || string(ns.UID) != claim.TargetNamespaceUID || ns.Labels[sondev1.LabelOptOut] == "true" {
		ns, err = r.namespace(ctx, r.Live, name) // a refusal is final, so it may not come from a cache that is behind
	}
	switch {
	case gone.Is(err):
		q.refuse(sondev1.ReasonNamespaceReplaced, fmt.Sprintf("namespace %q was deleted: run kubectl sonde intercept for another target", name))
		return nil
	case err != nil:
		q.replaced = true
		return wrap("get target namespace", err)
	case string(ns.UID) != claim.TargetNamespaceUID:
		q.refuse(sondev1.ReasonNamespaceReplaced, fmt.Sprintf("namespace %q was deleted and created again: run kubectl sonde intercept again", name))
		return nil
	case ns.Labels[sondev1.LabelOptOut] == "true":
		q.refuse(sondev1.ReasonOptedOut, fmt.Sprintf("a cluster admin has closed namespace %q by the label %s=true: ask them to remove it, and run kubectl sonde intercept again", name, sondev1.LabelOptOut))
		return nil
	case name == q.Namespace:
		return nil
	}
	home, err := r.namespace(ctx, r.Client, q.Namespace)
	if err != nil || home.Labels[sondev1.LabelHub] != "true" {
		home, err = r.namespace(ctx, r.Live, q.Namespace) // this refusal is final, too
	}
	if err != nil {
		return wrap("get own namespace", err)
	}
	if home.Labels[sondev1.LabelHub] != "true" {
		q.refuse(sondev1.ReasonHubNotAllowed, fmt.Sprintf("targets in other namespaces are allowed only from a namespace that a cluster admin has labelled %s=true: create the InterceptRequest in namespace %q", sondev1.LabelHub, name))
	}
	return nil
}

func (r *Reconciler) namespace(ctx context.Context, from client.Reader, name string) (*metav1.PartialObjectMetadata, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns, from.Get(ctx, client.ObjectKey{Name: name}, ns)
}

func (r *Reconciler) observeCarriers(ctx context.Context, o *observation) error {
	ours := []client.ListOption{client.InNamespace(r.Options.Namespace), client.MatchingLabels{sondev1.LabelKind: agentjob.KindCarrier}}
	var jobs batchv1.JobList
	if err := r.List(ctx, &jobs, ours...); err != nil {
		return wrap("list carriers", err)
	}
	if err := r.observeSecrets(ctx, o, ours); err != nil {
		return err
	}
	var agents corev1.PodList
	if err := r.List(ctx, &agents, ours...); err != nil {
		return wrap("list the Pods of carriers", err)
	}
	byUser := map[string]*slim.Pod{} // no other Job has the carrier's user
	for i := range agents.Items {
		agent := &agents.Items[i]
		byUser[agent.Labels[sondev1.LabelKeeperUser]] = target.SlimAgent(agent)
		if agent.Status.Phase == corev1.PodPending || agent.Status.Phase == corev1.PodRunning {
			o.leftover[types.UID(agent.Labels[sondev1.LabelTargetPodUID])] = true
		}
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		uid := types.UID(j.Labels[sondev1.LabelTargetPodUID])
		_, hasSecret := o.secrets[j.Name]
		delete(o.secrets, j.Name)
		delete(o.leftover, uid)
		o.carriers[uid] = &carrier{job: target.SlimJob(j), agent: byUser[j.Labels[sondev1.LabelKeeperUser]], hasSecret: hasSecret}
	}
	return nil
}

// observeSecrets reads the Secrets of carriers. One without a Job is left if the Job was deleted by hand, or if the manager ended
// between the two deletions.
func (r *Reconciler) observeSecrets(ctx context.Context, o *observation, ours []client.ListOption) error {
	secrets := &metav1.PartialObjectMetadataList{}
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := r.List(ctx, secrets, ours...); err != nil {
		return wrap("list the Secrets of carriers", err)
	}
	for i := range secrets.Items {
		o.secrets[secrets.Items[i].Name] = types.UID(secrets.Items[i].Labels[sondev1.LabelTargetPodUID])
	}
	return nil
}

// liveTimeout bounds the reading of Stowaway's Service and Secret.
const liveTimeout = 5 * time.Second

// observeStowaway reads Stowaway's few parts live. If that fails, it takes those that an earlier pass has read. Without InterceptRequests
// it stops once it has seen that none is left.
func (r *Reconciler) observeStowaway(ctx context.Context, o *observation) error {
	deployment := target.Metadata(sondev1.TargetDeployment)
	key := client.ObjectKey{Namespace: r.Options.Namespace, Name: tunnel.Name}
	err := r.Get(ctx, key, deployment)
	if gone.Ignore(err) != nil {
		return wrap("get Stowaway's Deployment", err)
	}
	o.stowaway.deployment, o.stowaway.namespace = err == nil, r.Options.Namespace
	if len(o.requests) == 0 && !o.stowaway.deployment && r.memory.stowawayAbsent {
		return nil
	}
	if err := r.observeStowawayLive(ctx, o, key); err != nil {
		if r.memory.stowaway == nil {
			return err
		}
		// These suffice to tell Stowaway what has ended.
		o.failed = errors.Join(o.failed, err)
		there := o.stowaway.deployment
		o.stowaway = *r.memory.stowaway
		o.stowaway.deployment, o.stowaway.old = there, true
	} else {
		r.memory.stowaway = new(o.stowaway)
		r.memory.stowawayAbsent = !o.stowaway.exist() && len(o.requests) == 0
	}
	if o.stowaway.deployment && o.stowaway.secret && o.stowaway.service {
		if o.status, err = r.Stowaway.Status(ctx, &o.stowaway); err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("Waiting for Stowaway", "reason", err.Error())
			o.stowaway.waiting = r.whyNotReady(ctx)
		}
	}
	return nil
}

func (r *Reconciler) observeStowawayLive(ctx context.Context, o *observation, key client.ObjectKey) error {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout) // an API server that hangs would hold up what ends
	defer cancel()
	var service corev1.Service
	if err := gone.Ignore(r.Live.Get(ctx, key, &service)); err != nil {
		return wrap("get Stowaway's Service", err)
	}
	if service.UID != "" {
		o.stowaway.service, o.stowaway.address = true, service.Spec.ClusterIP
	}
	return r.observeStowawayKeys(ctx, o, key)
}

func (r *Reconciler) observeStowawayKeys(ctx context.Context, o *observation, key client.ObjectKey) error {
	var secret corev1.Secret
	if err := gone.Ignore(r.Live.Get(ctx, key, &secret)); err != nil {
		return wrap("get Stowaway's Secret", err)
	}
	if secret.UID == "" {
		return nil
	}
	own, err := tunnel.ParseIdentity(secret.Data[agentjob.SecretStowaway])
	if err != nil {
		return fmt.Errorf("parse Secret %s, key %s: %w: delete the Secret", key, agentjob.SecretStowaway, err)
	}
	text, err := sealed.Open(r.Key, key.Name, agentjob.SecretStowawayManager, secret.Data[agentjob.SecretStowawayManager])
	if errors.Is(err, sealed.ErrOtherKey) {
		ctrl.LoggerFrom(ctx).Info("Deleting Stowaway, whose Secret cannot be read", "reason", err.Error())
		o.stowaway.unreadable = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: delete the Secret %s", err, key)
	}
	manager, err := tunnel.ParseIdentity(text)
	if err != nil {
		return fmt.Errorf("parse Secret %s, key %s: %w: delete the Secret", key, agentjob.SecretStowawayManager, err)
	}
	o.stowaway.secret, o.stowaway.key, o.stowaway.managerKey, o.stowaway.manager = true, own.Key, manager.Key, manager
	return nil
}

// whyNotReady returns what the kubelet or the scheduler says of Stowaway's Pod.
func (r *Reconciler) whyNotReady(ctx context.Context) string {
	var pods corev1.PodList
	err := r.Live.List(ctx, &pods, client.InNamespace(r.Options.Namespace), client.Limit(3),
		client.MatchingLabels{"app.kubernetes.io/component": agentjob.ComponentStowaway})
	if err != nil {
		return ""
	}
	for i := range pods.Items {
		for _, s := range pods.Items[i].Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil && w.Message != "" {
				return w.Reason + ": " + w.Message
			}
		}
		for _, c := range pods.Items[i].Status.Conditions {
			if c.Status == corev1.ConditionFalse && c.Message != "" {
				return c.Reason + ": " + c.Message
			}
		}
	}
	return ""
}
