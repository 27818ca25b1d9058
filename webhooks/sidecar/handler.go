// Package sidecar puts the volume and the sidecar of a FluentPVC into new Pods.
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/claim"
	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/internal/operator/gate"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
	"github.com/sonde-operator/sonde/internal/wire/text"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// +kubebuilder:rbac:groups="",resources=namespaces;persistentvolumeclaims,verbs=get
// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=fluentpvcs;fluentpvcbindings,verbs=get;list;watch

// lookupTimeout is below the timeout of the webhook, so that the creator of the Pod reads which lookup failed.
const lookupTimeout = 4 * time.Second

// Handler puts the volume and the sidecar of a FluentPVC into new Pods that name one. It fails closed: a Pod that names a
// FluentPVC and could run without its volume would lose its data. It writes nothing, so a dry run changes nothing; the controller
// creates binding and claim when the Pod exists.
type Handler struct {
	// Cache of FluentPVCs.
	Cache client.Reader
	// Live reads from the API server, few objects of tenants at once (internal/operator/fewreads).
	Live client.Reader
	// Verify returns an error for a FluentPVC that the webhook for FluentPVCs has not admitted as it is.
	Verify func(*sondev1.FluentPVC) error
	// Rights of the manager in the Pods' namespaces.
	Rights Rights
	// Bindings counts the volumes of a FluentPVC in a namespace.
	Bindings *Bindings
	// Key of the claims' signatures.
	Key []byte
	// OperatorNamespace has no Pods with a FluentPVC.
	OperatorNamespace string

	injecting sync.Mutex
}

// Handle implements admission.Handler of controller-runtime.
func (h *Handler) Handle(ctx context.Context, req webhook.AdmissionRequest) (resp webhook.AdmissionResponse) {
	defer func() {
		if p := recover(); p != nil {
			resp = admission.Refuse(ctx, req, fmt.Errorf("add the FluentPVC: panic: %v", p))
		}
	}()
	if req.Operation != admissionv1.Create || req.SubResource != "" || req.Kind.Kind != "Pod" || gate.Protected(req.Namespace, h.OperatorNamespace) {
		return webhook.Allowed("")
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ops, err := h.patch(ctx, req)
	if err != nil {
		return admission.Refuse(ctx, req, err)
	}
	return webhook.Patched("", ops...)
}

// patch returns the patch for a Pod; none for one that names no FluentPVC.
func (h *Handler) patch(ctx context.Context, req webhook.AdmissionRequest) ([]jsonpatch.Operation, error) {
	pod, err := decodeMetadata(req.Object.Raw)
	if err != nil {
		return nil, err
	}
	name, err := sidecar.Named(pod)
	switch {
	case err != nil:
		return nil, admission.Invalid("%v", err)
	case name == "":
		return nil, nil
	}
	f, err := h.fluentPVC(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := h.checkNamespace(ctx, f, req.Namespace); err != nil {
		return nil, err
	}
	in, err := h.injection(ctx, req.Namespace, f, pod)
	if err != nil {
		return nil, err
	}
	ops, err := h.inject(req.Object.Raw, pod, f, in)
	if err != nil {
		return nil, err
	}
	return ops, h.Bindings.Admit(ctx, req.Namespace, f, in.Claim, req.DryRun != nil && *req.DryRun)
}

// inject handles one Pod at a time, because it decodes and copies its lists.
func (h *Handler) inject(raw []byte, pod *corev1.Pod, f *sondev1.FluentPVC, in sidecar.Injection) ([]jsonpatch.Operation, error) {
	h.injecting.Lock()
	defer h.injecting.Unlock()
	if err := decodeLists(raw, pod, &f.Spec); err != nil {
		return nil, err
	}
	after := pod.DeepCopy()
	if err := sidecar.Inject(after, &f.Spec, in); err != nil {
		return nil, admission.Invalid("FluentPVC %s cannot be added to this Pod: %v", f.Name, err)
	}
	return sidecar.Patch(pod, after)
}

// fluentPVC returns the FluentPVC of this name with a valid stamp. A Pod may be created a moment after its FluentPVC, which the
// cache does not have yet.
func (h *Handler) fluentPVC(ctx context.Context, name string) (*sondev1.FluentPVC, error) {
	if !admission.IsObjectName(name) {
		return nil, notFound(name)
	}
	f, key := &sondev1.FluentPVC{}, client.ObjectKey{Name: name}
	err := h.Cache.Get(ctx, key, f)
	if apierrors.IsNotFound(err) {
		err = h.Live.Get(ctx, key, f)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, notFound(name)
	case err != nil:
		return nil, fmt.Errorf("get FluentPVC %s: %w", name, err)
	}
	if err := h.Verify(f); err != nil {
		return nil, admission.Forbidden("FluentPVC %s cannot be used: %v", name, err)
	}
	return f, nil
}

func notFound(name string) error {
	return admission.Invalid("FluentPVC %q not found: set %s to a name that \"kubectl get fluentpvcs\" shows, or remove it",
		text.Ellipsis(name, 256), sondev1.KeyFluentPVC)
}

// checkNamespace decides whether a namespace may have Pods with this FluentPVC now.
func (h *Handler) checkNamespace(ctx context.Context, f *sondev1.FluentPVC, namespace string) error {
	var ns corev1.Namespace
	if err := h.Live.Get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return fmt.Errorf("get namespace %s: %w", namespace, err)
	}
	if ns.Labels[sondev1.LabelOptOut] == "true" {
		return admission.Forbidden("a cluster admin has closed namespace %s to FluentPVCs by the label %s=true: ask them to remove it, or remove the name of FluentPVC %s from the Pod",
			namespace, sondev1.LabelOptOut, f.Name)
	}
	paused, err := pause.Requested(ctx, h.Live, h.OperatorNamespace)
	if err != nil {
		return err
	}
	if paused {
		return admission.Forbidden("a cluster admin has paused the operator (key %s of ConfigMap %s/%s), so this Pod cannot get the volume of FluentPVC %s: ask them to set it to \"false\"; the Pod's controller tries again by itself",
			pause.Key, h.OperatorNamespace, pause.ConfigMapName, f.Name)
	}
	return h.checkRights(ctx, f, namespace)
}

// injection returns the claim of a Pod. If this webhook has changed the Pod before, the claim stays. A Pod that was copied from
// another one, from a backup or from a dry run may carry a valid signature too; it keeps the claim only if no one uses it.
func (h *Handler) injection(ctx context.Context, namespace string, f *sondev1.FluentPVC, pod *corev1.Pod) (sidecar.Injection, error) {
	var earlier *sondev1.FluentPVCSpec
	if ref, ok := claim.Parse(h.Key, namespace, pod.Annotations[sondev1.AnnotationClaim]); ok {
		used, template, err := h.used(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Claim})
		if err != nil {
			return sidecar.Injection{}, err
		}
		if !used && ref.FluentPVC == f.Name {
			return sidecar.Injection{Claim: ref.Claim, Annotation: ref.Sign(h.Key, namespace), Reinvoked: true}, nil
		}
		earlier = template
	}
	ref := claim.Ref{FluentPVC: f.Name, Claim: claim.NewName(namespace, f.Name)}
	return sidecar.Injection{Claim: ref.Claim, Annotation: ref.Sign(h.Key, namespace), Earlier: earlier}, nil
}

// used reports whether a binding or a claim of this name exists, and returns the binding's template.
func (h *Handler) used(ctx context.Context, key client.ObjectKey) (bool, *sondev1.FluentPVCSpec, error) {
	var binding sondev1.FluentPVCBinding
	err := h.Live.Get(ctx, key, &binding)
	if err == nil {
		return true, &binding.Spec.Template, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, nil, fmt.Errorf("get FluentPVCBinding %s: %w", key, err)
	}
	pvc := &metav1.PartialObjectMetadata{}
	pvc.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	err = h.Live.Get(ctx, key, pvc)
	if errors.Is(err, fewreads.ErrTooLarge) {
		return true, nil, nil // whatever it has, it exists
	}
	if client.IgnoreNotFound(err) != nil {
		return false, nil, fmt.Errorf("get PersistentVolumeClaim %s: %w", key, err)
	}
	return err == nil, nil, nil
}
