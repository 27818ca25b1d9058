// Package collector admits Collectors and stamps them with the user who created them or changed them last.
package collector

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/pass"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// maxSpec of a Collector as JSON, in bytes. The releaser's Secret has a copy, and a Secret may have 1 MiB.
const maxSpec = 512 << 10

// Rights reviews the right to create Jobs.
type Rights interface {
	ReviewJobs(ctx context.Context, who access.Requester, namespace string) (access.Decision, error)
}

// maxPerNamespace is how many Collectors a namespace may have. A hub has those of all its tenants. The manager's cache has all of them.
const maxPerNamespace = 1000

// Handler admits Collectors. It fails closed. It writes nothing but reviews, which the API server does not store.
type Handler struct {
	// Cache of all Collectors.
	Cache client.Reader
	// Live reads from the API server.
	Live client.Reader
	// Reviews are not cached.
	Reviews Rights
	// Key of the stamp.
	Key []byte
	// OperatorNamespace has no releases.
	OperatorNamespace string
	Clock             clock.PassiveClock
}

// Handle implements admission.Handler of controller-runtime.
func (h *Handler) Handle(ctx context.Context, req webhook.AdmissionRequest) webhook.AdmissionResponse {
	return admission.HandleMutable(ctx, req, h.decide)
}

// decide decides on a new Collector and on an update. An update that changes neither spec nor stamp keeps the requester, so that anyone may
// write labels, unless the stamp is to be renewed: deleting the Collector instead would delete the backend.
func (h *Handler) decide(ctx context.Context, req webhook.AdmissionRequest) (admission.Granted, error) {
	c := &sondev1.Collector{}
	if err := admission.Decode(req.Object.Raw, c); err != nil {
		return admission.Granted{}, err
	}
	c.Namespace = req.Namespace // the object may name another, or none
	renew := required
	if req.Operation == admissionv1.Update {
		var err error
		if renew, err = h.renewal(ctx, c, req.OldObject.Raw); renew == keep || err != nil {
			return admission.Granted{}, err
		}
	}
	if c.Name == "" {
		return admission.Granted{}, admission.Invalid("metadata.name is empty: write a name; generateName does not work for a Collector")
	}
	who := access.FromUserInfo(req.UserInfo)
	namespaceUID, err := h.check(ctx, c, who)
	if err == nil && req.Operation == admissionv1.Create {
		err = h.checkNumber(ctx, c.Namespace)
	}
	if err != nil {
		if renew == offered { // someone who may only write labels, or retry
			return admission.Granted{}, nil
		}
		return admission.Granted{}, err
	}
	annotations, err := stamp.SignCollector(h.Key, c, stamp.Claim{
		Requester: who, TargetNamespaceUID: namespaceUID, IssuedAt: h.Clock.Now(), RequestUID: string(req.UID),
	})
	return admission.Granted{Annotations: annotations}, err
}

// renewal says whether an update gets a new stamp, with its user as the requester.
type renewal int

const (
	// keep the stamp, which holds.
	keep renewal = iota
	// offered: a user who has the rights renews it, and others leave it as it is.
	offered
	// required: users without the rights are refused.
	required
)

// renewal of the stamp by an update. Users ask for it by a retry: then the stamp must also name the namespace as it is, which may have been
// deleted and created again, and a requester who has lost the right is replaced.
func (h *Handler) renewal(ctx context.Context, c *sondev1.Collector, old []byte) (renewal, error) {
	changed, retries, err := compare(c, old)
	if changed || err != nil {
		return required, err
	}
	claim, err := stamp.VerifyCollector(h.Key, c)
	switch {
	case err != nil && retries: // written while no webhook ran, or signed with another key or by an earlier version
		return required, nil
	case err != nil:
		return offered, nil //nolint:nilerr // as above; but labels may be written without the rights
	case !retries:
		return keep, nil
	}
	ns := &corev1.Namespace{}
	if err := h.Live.Get(ctx, client.ObjectKey{Name: c.ReleaseNamespace()}, ns); gone.Ignore(err) != nil {
		return required, fmt.Errorf("get Namespace %s: %w", c.ReleaseNamespace(), err)
	}
	if string(ns.UID) != claim.TargetNamespaceUID {
		return required, nil
	}
	decision, err := h.Reviews.ReviewJobs(ctx, claim.Requester, ns.Name)
	if err != nil || decision.Allowed {
		return keep, err
	}
	return offered, nil
}

// check refuses what cannot work, and returns the UID of the release's namespace. The order matters: no answer says anything about a
// namespace before the requester's right there is proven.
func (h *Handler) check(ctx context.Context, c *sondev1.Collector, who access.Requester) (namespaceUID string, err error) {
	if err := checkSpec(&c.Spec); err != nil {
		return "", err
	}
	in := c.ReleaseNamespace()
	if in == h.OperatorNamespace || c.Namespace == h.OperatorNamespace {
		return "", admission.Forbidden("namespace %s is the operator's own: it has no releases; choose the tenant's namespace", h.OperatorNamespace)
	}
	if err := admission.RequireHub(ctx, h.Live, sondev1.CollectorKind, c.Namespace, in); err != nil {
		return "", err
	}
	decision, err := h.Reviews.ReviewJobs(ctx, who, in)
	if err != nil {
		return "", err
	}
	if !decision.Allowed {
		return "", admission.Forbidden("a Collector runs Helm in a Job in the tenant's namespace: %s", decision.Reason)
	}
	ns, err := admission.TargetNamespace(ctx, h.Live, in)
	if _, ok := errors.AsType[*admission.Refusal](err); ok {
		return "", admission.Invalid("namespace %s does not exist, or is being deleted: create it, and let its admin run kubectl sonde collector open -n %[1]s", in)
	}
	if err != nil {
		return "", err
	}
	if ns.Labels[sondev1.LabelOptOut] == "true" {
		return "", admission.Forbidden("a cluster admin has closed namespace %s by the label %s=true: ask them to remove it", in, sondev1.LabelOptOut)
	}
	return string(ns.UID), nil
}

// checkNumber refuses one Collector more than a namespace may have.
func (h *Handler) checkNumber(ctx context.Context, namespace string) error {
	var all sondev1.CollectorList
	if err := h.Cache.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("count Collectors: %w", err)
	}
	if n := len(all.Items); n >= maxPerNamespace {
		return admission.TooMany("namespace %s has %d Collectors, and may have %d: delete some, or use another namespace", namespace, n, maxPerNamespace)
	}
	return nil
}

// checkSpec refuses what the schema would refuse after the webhook, as far as the webhook uses it, and what the schema cannot see.
func checkSpec(s *sondev1.CollectorSpec) error {
	in := strings.ToLower(s.Tenant.Reference)
	if !admission.IsNamespaceName(in) {
		return admission.Invalid("tenant.reference must be the name of a namespace, in upper or lower case, like acme")
	}
	b, err := json.Marshal(s)
	if err != nil {
		return admission.Invalid("values: %v: write an object", err)
	}
	if len(b) > maxSpec {
		return admission.Invalid("the spec has %d KiB, and a Collector may have %d: move large values into a ConfigMap that the chart mounts", len(b)>>10, maxSpec>>10)
	}
	// The releaser reads the YAML: aliases could expand to more than the manager's memory.
	if _, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s.Collector.Configuration), "")); err != nil {
		return admission.Invalid("collector.configuration is not base64 (%v): write the output of base64 -w0 values.yaml", err)
	}
	return checkTimes(s)
}

// checkTimes refuses times out of bounds. Each may be left out.
func checkTimes(s *sondev1.CollectorSpec) error {
	if s.Interval != "" {
		if err := admission.CheckTime("interval", s.Interval, 30*time.Second, 24*time.Hour, "between 30s and 24h"); err != nil {
			return err
		}
	}
	for name, a := range map[string]*sondev1.CollectorAction{"install": s.Install, "upgrade": s.Upgrade} {
		if a == nil || a.Timeout == "" {
			continue
		}
		if err := admission.CheckTime(name+".timeout", a.Timeout, 10*time.Second, time.Hour, "between 10s and 1h"); err != nil {
			return err
		}
	}
	return nil
}

// compare reports whether an update changes the stamp or the spec, and whether it asks for a retry.
func compare(now *sondev1.Collector, old []byte) (changed, retries bool, err error) {
	before := &sondev1.Collector{}
	if err := admission.Decode(old, before); err != nil {
		return true, false, nil //nolint:nilerr // stored while no webhook ran: the update is checked like a creation
	}
	for _, a := range []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp} {
		if now.Annotations[a] != before.Annotations[a] {
			return true, false, nil
		}
	}
	is, err := json.Marshal(&now.Spec)
	if err != nil {
		return false, false, fmt.Errorf("marshal spec: %w", err)
	}
	was, err := json.Marshal(&before.Spec)
	if err != nil {
		return false, false, fmt.Errorf("marshal spec: %w", err)
	}
	retry := pass.RetryRequested(now.Annotations)
	return !bytes.Equal(is, was), retry != "" && retry != pass.RetryRequested(before.Annotations), nil
}
