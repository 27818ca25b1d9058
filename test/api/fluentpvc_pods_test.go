//go:build api

package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	acadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/controllers/capture"
	"github.com/sonde-operator/sonde/controllers/fluentpvc"
	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
	"github.com/sonde-operator/sonde/webhooks/admission"
	"github.com/sonde-operator/sonde/webhooks/sidecar"
)

// startFluentPVC runs the controller of bindings and the webhook for Pods that name a FluentPVC, as the manager's user. The
// namespace's admin has allowed it claims and Jobs.
func startFluentPVC(t *testing.T, ns string, clk clock.PassiveClock) {
	t.Helper()
	applyRoles(t)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fluentpvc"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"create", "delete"}},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"create", "delete"}},
	}}
	create(t, role)
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fluentpvc"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: managerUser}},
	})
	user := rest.CopyConfig(config)
	user.Impersonate.UserName = managerUser
	options, err := capture.CacheOptions(operatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(options.ByObject, fluentpvc.CacheByObject())
	mgr, err := ctrl.NewManager(user, ctrl.Options{
		Scheme: scheme, Cache: options, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: controllerconfig.Controller{SkipNameValidation: new(true)}, // several tests start it
	})
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.New(user, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	own, err := fluentpvc.NewCache(t.Context(), user, operatorNamespace, scheme)
	if err != nil {
		t.Fatal(err)
	}
	paused, err := pause.NewCache(user, operatorNamespace, scheme)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(f *sondev1.FluentPVC) error {
		_, err := stamp.VerifyFluentPVC(stampKey, f)
		return err
	}
	r := &fluentpvc.Reconciler{
		Client: mgr.GetClient(), Own: own, Live: live, Verify: verify, PauseConfig: paused, Key: stampKey, Namespace: operatorNamespace, Recorder: mgr.GetEventRecorder("sonde"),
		Clock: clk, Permitted: func(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
			return access.OwnRight(ctx, live, what)
		}, Watchdog: &health.Watchdog{Limit: time.Minute, Clock: clock.RealClock{}},
	}
	if err := errors.Join(mgr.Add(own), mgr.Add(paused), fluentpvc.IndexFields(t.Context(), mgr.GetFieldIndexer()), r.SetupWithManager(mgr, own, paused)); err != nil {
		t.Fatal(err)
	}
	runManager(t, mgr)
	mux := http.NewServeMux()
	mux.Handle(webhookpath.Sidecar, admission.NewIntake().Hook(&webhook.Admission{Handler: &sidecar.Handler{
		Cache: mgr.GetClient(), Live: live, Rights: sidecar.NewOwnRights(own.Granted, live, clock.RealClock{}), Bindings: sidecar.NewBindings(mgr.GetClient(), clock.RealClock{}),
		Verify: verify, Key: stampKey, OperatorNamespace: operatorNamespace,
	}}, nil))
	serve(t, mux, func(o platformcontroller.ConfigurationOptions) *acadmission.MutatingWebhookConfigurationApplyConfiguration {
		return platformcontroller.BuildPodConfiguration(o, platformcontroller.PodWebhooks{Sidecars: true})
	})
}

// podOf returns a Pod that names a FluentPVC and is good for pod security's level restricted.
func podOf(ns, name, fluentPVC string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{sondev1.KeyFluentPVC: fluentPVC}},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "main", Image: "main:1",
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
}

// Neither 1,000 dry runs nor 1,000 Pods that are refused after the webhook has admitted them leave a claim or a binding. One Pod that
// is created gets both.
func TestFluentPVCPodsThatDoNotExistLeaveNothing(t *testing.T) {
	sonde(t)
	serveWebhooks(t)
	fluentPVCUsers(t)
	ns := namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	startFluentPVC(t, ns, clock.RealClock{})
	// A Pod that was refused after the webhook has admitted it counts for maxBindings for half a minute.
	o := fluentPVCObject(t, fluentPVCSample, "nothing", map[string]any{"maxBindings": int64(10_000), "sidecarContainerTemplate": map[string]any{
		"name": "sidecar", "image": "sidecar:1",
		"securityContext": map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}},
	}})
	created(t, o)
	poll(t, "webhook called", func() bool {
		p := podOf(ns, "probe", o.GetName())
		return admin.Create(t.Context(), p, client.DryRunAll) == nil && len(p.Spec.Containers) == 2
	})
	first := podOf(ns, "first", o.GetName())
	create(t, first)
	const times = 1000
	for n := range times {
		p := podOf(ns, fmt.Sprintf("dry-%d", n), o.GetName())
		if err := admin.Create(t.Context(), p, client.DryRunAll); err != nil || len(p.Spec.Containers) != 2 {
			t.Fatalf("dry run %d: %v, %d containers", n, err, len(p.Spec.Containers))
		}
		p = podOf(ns, fmt.Sprintf("refused-%d", n), o.GetName())
		if n%2 == 0 { // pod security refuses it, after the mutating webhooks
			p.Spec.SecurityContext = nil
			if err := admin.Create(t.Context(), p); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "restricted") {
				t.Fatalf("Pod %d: %v, want a refusal by pod security", n, err)
			}
			continue
		}
		p.Name = first.Name // the storage refuses it, last of all
		if err := admin.Create(t.Context(), p); !apierrors.IsAlreadyExists(err) {
			t.Fatalf("Pod %d: %v, want that it exists", n, err)
		}
	}
	poll(t, "the one Pod's binding and claim", func() bool { return claims(t, ns) == [2]int{1, 1} })
	time.Sleep(2 * time.Second) // a controller that acts on Pods that do not exist has had its time
	if got := claims(t, ns); got != [2]int{1, 1} {
		t.Errorf("%d bindings and %d claims, want one of each", got[0], got[1])
	}
}

// claims counts the bindings and the claims of a namespace.
func claims(t *testing.T, ns string) [2]int {
	t.Helper()
	var bindings sondev1.FluentPVCBindingList
	var all corev1.PersistentVolumeClaimList
	if err := errors.Join(admin.List(t.Context(), &bindings, client.InNamespace(ns)), admin.List(t.Context(), &all, client.InNamespace(ns))); err != nil {
		t.Fatal(err)
	}
	return [2]int{len(bindings.Items), len(all.Items)}
}

// leaps is a clock on which ten minutes pass between any two looks.
type leaps struct{ looks atomic.Int64 }

func (c *leaps) Now() time.Time {
	return time.Now().Add(time.Duration(c.looks.Add(1)) * 10 * time.Minute)
}

func (c *leaps) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// A claim that cannot be deleted, because the right was withdrawn, is deleted soon after the admin runs "kubectl sonde fluentpvc allow".
// On the controller's clock, the right has been missing for so long that the next retry is minutes away.
func TestFluentPVCContinuesAfterAllow(t *testing.T) {
	sonde(t)
	serveWebhooks(t)
	fluentPVCUsers(t)
	ns := namespace(t, nil)
	startFluentPVC(t, ns, &leaps{})
	createUntilEnd(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: access.RoleFluentPVC}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"delete"}},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"delete"}},
	}})
	o := fluentPVCObject(t, fluentPVCSample, "continues", nil)
	created(t, o)
	poll(t, "webhook called", func() bool {
		p := podOf(ns, "probe", o.GetName())
		return admin.Create(t.Context(), p, client.DryRunAll) == nil && len(p.Spec.Containers) == 2
	})
	pod := podOf(ns, "web", o.GetName())
	create(t, pod)
	var bindings sondev1.FluentPVCBindingList
	reason := func() string {
		if err := admin.List(t.Context(), &bindings, client.InNamespace(ns)); err != nil || len(bindings.Items) != 1 {
			return fmt.Sprintf("%d bindings, %v", len(bindings.Items), err)
		}
		if c := apimeta.FindStatusCondition(bindings.Items[0].Status.Conditions, sondev1.ConditionClaimCreated); c != nil {
			return c.Reason
		}
		return "no condition"
	}
	poll(t, "the claim", func() bool { return reason() == sondev1.ReasonClaimCreated })
	remove(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fluentpvc"}})
	if err := admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	poll(t, "NotPermitted", func() bool { return reason() == sondev1.ReasonNotPermitted })
	time.Sleep(7 * time.Second) // the first retry is after 5 s, the next one minutes later
	if got := reason(); got != sondev1.ReasonNotPermitted {
		t.Fatalf("condition %s, want it still %s", got, sondev1.ReasonNotPermitted)
	}
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: access.RoleFluentPVC},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: access.RoleFluentPVC},
		Subjects:   []rbacv1.Subject{access.ManagerSubject(operatorNamespace), {Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: managerUser}},
	})
	poll(t, "the claim's deletion", func() bool {
		var claims corev1.PersistentVolumeClaimList
		return admin.List(t.Context(), &claims, client.InNamespace(ns)) == nil && (len(claims.Items) == 0 || !claims.Items[0].DeletionTimestamp.IsZero())
	})
}
