package intercept

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/operator/sealed"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// fieldOwner of what this controller writes.
const fieldOwner = client.FieldOwner("sonde-intercepts")

// actions are the results of act that report needs.
type actions struct {
	// refused says why the API server did not create the carrier of a Pod, by the Pod's UID.
	refused map[types.UID]string
}

// act writes. It goes on after an error, because the requests of others must not wait for one that fails.
func (r *Reconciler) act(ctx context.Context, o *observation, p *plan) (*actions, error) {
	done := &actions{refused: map[types.UID]string{}}
	var errs []error
	// First what ends the routes of requests that have expired or lost the right: the rest may take long.
	switch {
	case o.stowaway.old: // so nothing is created or deleted by it
		errs = append(errs, r.push(ctx, o, p))
	case p.removeStowaway:
		errs = append(errs, r.removeStowaway(ctx))
	case p.stowaway:
		errs = append(errs, r.ensureStowaway(ctx, o), r.push(ctx, o, p))
	}
	for _, c := range p.remove {
		r.countFailure(c)
		errs = append(errs, r.removeCarrier(ctx, c))
	}
	maps.DeleteFunc(r.memory.failures, func(uid types.UID, _ int) bool { return p.pods[uid] == nil })
	for _, name := range p.removeSecrets {
		errs = append(errs, r.removeSecret(ctx, name))
	}
	current := map[string]error{} // what checkCurrent has returned, by namespace
	for _, pod := range p.create {
		err, checked := current[pod.Namespace]
		if !checked {
			err = r.checkCurrent(ctx, o, pod.Namespace)
			current[pod.Namespace] = err
			errs = append(errs, err)
		}
		if err == nil {
			err = r.createCarrier(ctx, o, pod)
			errs = append(errs, err)
		}
		if err != nil {
			done.refused[pod.UID] = err.Error()
		}
	}
	return done, errors.Join(errs...)
}

// checkCurrent returns an error if a request is for an earlier namespace of this name than the API server has. The pass may have checked
// it against a cache that was behind, or not at all (readError). It gives no right to the Pods of a namespace that was made anew.
func (r *Reconciler) checkCurrent(ctx context.Context, o *observation, name string) error {
	live, err := r.namespace(ctx, r.Live, name)
	if err != nil {
		return wrap("get target namespace", err)
	}
	for _, q := range o.requests {
		if namespace, _ := q.AgentTarget(); namespace == name && len(q.pods) > 0 && q.namespaceUID != live.UID {
			return fmt.Errorf("namespace %q was just deleted and created again: the operator checks its InterceptRequests again", name)
		}
	}
	return nil
}

// countFailure remembers that a carrier has failed, so that the next one that fails waits longer.
func (r *Reconciler) countFailure(c *carrier) {
	switch {
	case !c.ended():
	case r.memory.failures == nil:
		r.memory.failures = map[types.UID]int{c.target(): 1}
	case r.Clock.Since(c.job.GetCreationTimestamp().Time) > healthyAfter:
		r.memory.failures[c.target()] = 1
	default:
		r.memory.failures[c.target()]++
	}
}

// removeCarrier deletes a Job with its Pod. The Job keeps its name until the Pod has gone, so that no other carrier starts meanwhile.
func (r *Reconciler) removeCarrier(ctx context.Context, c *carrier) error {
	if err := sweep.Delete(ctx, r.Client, c.job.Expand(), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		return err
	}
	return r.removeSecret(ctx, c.job.GetName())
}

func (r *Reconciler) removeSecret(ctx context.Context, name string) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Options.Namespace, Name: name}}
	return wrap("delete the Secret of carrier "+name, client.IgnoreNotFound(r.Delete(ctx, secret)))
}

// createCarrier creates first the Secret, whose key Stowaway learns by push, and then the Job.
func (r *Reconciler) createCarrier(ctx context.Context, o *observation, pod *corev1.Pod) error {
	address, err := netip.ParseAddr(o.stowaway.address)
	if err != nil {
		return fmt.Errorf("address of Stowaway's Service: %w", err)
	}
	user, err := r.Users.Assign(ctx, r.Client, r.Options.Namespace, pod.UID, pod.UID)
	if err != nil {
		return err
	}
	owner, err := platform.Owner(ctx, r.Live, "Job/"+agentjob.CarrierName(pod))
	if err != nil {
		return err
	}
	plan := agentjob.CarrierPlan{
		Owners: platform.OwnerReferences(owner),
		Name:   agentjob.CarrierName(pod), Pod: pod, User: user,
		Stowaway: netip.AddrPortFrom(address, tunnel.PeerPort), StowawayKey: o.stowaway.key,
	}
	if plan.Key, err = r.createCarrierSecret(ctx, plan); err != nil {
		return err
	}
	if err := r.Create(ctx, agentjob.Carrier(r.Options, plan), fieldOwner); err != nil && !apierrors.IsAlreadyExists(err) {
		return wrap("create carrier "+plan.Name, err)
	}
	return nil
}

// createCarrierSecret returns the key in the Secret of a carrier, which an earlier pass may have created.
func (r *Reconciler) createCarrierSecret(ctx context.Context, plan agentjob.CarrierPlan) (tunnel.PublicKey, error) {
	identity, err := tunnel.NewIdentity()
	if err != nil {
		return "", err
	}
	text, err := identity.MarshalPEM()
	if err != nil {
		return "", err
	}
	plan.Key = identity.Key
	err = r.Create(ctx, agentjob.CarrierSecret(r.Options, plan, text), fieldOwner)
	if !apierrors.IsAlreadyExists(err) {
		return identity.Key, wrap("create the Secret of carrier "+plan.Name, err)
	}
	var there corev1.Secret
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Options.Namespace, Name: plan.Name}, &there); err != nil {
		return "", wrap("get the Secret of carrier "+plan.Name, err)
	}
	if identity, err = tunnel.ParseIdentity(there.Data[agentjob.SecretIdentity]); err != nil {
		return "", errors.Join(fmt.Errorf("parse the Secret of carrier %s: %w", plan.Name, err), r.removeSecret(ctx, plan.Name))
	}
	return identity.Key, nil
}

// ensureStowaway creates the missing parts of Stowaway, and updates a Deployment of another version of the operator. If the Secret cannot be read,
// it deletes Stowaway, and the next pass makes another.
func (r *Reconciler) ensureStowaway(ctx context.Context, o *observation) error {
	if o.stowaway.unreadable {
		return r.removeStowaway(ctx)
	}
	applied := r.memory.deployed == o.stowaway.managerKey && o.stowaway.deployment
	if applied && o.stowaway.secret && o.stowaway.service {
		return nil
	}
	owner, err := platform.Owner(ctx, r.Live, "Deployment/"+tunnel.Name)
	if err != nil {
		return err
	}
	if !o.stowaway.secret {
		return r.createStowawaySecret(ctx, owner)
	}
	if !o.stowaway.service {
		service := agentjob.StowawayService(r.Options, platform.AppliedOwners(owner))
		if err := r.Apply(ctx, service, fieldOwner, client.ForceOwnership); err != nil {
			return wrap("apply Stowaway's Service", err)
		}
	}
	if applied {
		return nil
	}
	deployment := agentjob.Stowaway(r.Options, platform.AppliedOwners(owner), o.stowaway.key, o.stowaway.managerKey)
	if err := r.Apply(ctx, deployment, fieldOwner, client.ForceOwnership); err != nil {
		return wrap("apply Stowaway's Deployment", err)
	}
	r.memory.deployed = o.stowaway.managerKey
	return nil
}

func (r *Reconciler) createStowawaySecret(ctx context.Context, owner types.UID) error {
	var texts [2][]byte
	for i := range texts {
		identity, err := tunnel.NewIdentity()
		if err != nil {
			return err
		}
		if texts[i], err = identity.MarshalPEM(); err != nil {
			return err
		}
	}
	own, err := sealed.Seal(r.Key, tunnel.Name, agentjob.SecretStowawayManager, texts[1])
	if err != nil {
		return err
	}
	err = r.Create(ctx, agentjob.StowawaySecret(r.Options, platform.OwnerReferences(owner), texts[0], own), fieldOwner)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return wrap("create Stowaway's Secret", err)
}

// removeStowaway deletes Stowaway. Its Secret goes last: a Pod of the Deployment mounts it.
func (r *Reconciler) removeStowaway(ctx context.Context) error {
	r.Stowaway.Close()
	r.memory = memory{}
	meta := metav1.ObjectMeta{Namespace: r.Options.Namespace, Name: tunnel.Name}
	var errs []error
	for _, o := range []client.Object{&appsv1.Deployment{ObjectMeta: meta}, &corev1.Service{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}} {
		errs = append(errs, client.IgnoreNotFound(r.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))))
	}
	return wrap("delete Stowaway", errors.Join(errs...))
}

// pushInterval is how often Stowaway gets a state that it has. It ends all routes when it gets none for ten minutes.
const pushInterval = time.Minute

// push gives Stowaway the state that it should have.
func (r *Reconciler) push(ctx context.Context, o *observation, p *plan) error {
	if o.status == nil {
		return nil // not reachable; report says so
	}
	var carriers []tunnel.Carrier
	for uid, pod := range p.pods {
		c := o.carriers[uid]
		if c == nil || c.job.GetDeletionTimestamp() != nil || c.ended() || c.outdated(&o.stowaway) {
			continue
		}
		carriers = append(carriers, tunnel.Carrier{Pod: string(uid), Name: pod.GetNamespace() + "/" + pod.GetName(), Key: c.key()})
	}
	state := p.state(carriers)
	now := r.Clock.Now()
	if o.status.Generation == state.Generation && now.Sub(r.memory.pushed) < pushInterval {
		return nil
	}
	if err := r.Stowaway.Push(ctx, &o.stowaway, state); err != nil {
		return wrap("give Stowaway its routes", err)
	}
	r.memory.pushed = now
	return nil
}
