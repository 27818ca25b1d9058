package intercept

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
)

// TestRefusalsAreNotOld: a refusal is final, so an answer of a cache that is behind must not give one.
func TestRefusalsAreNotOld(t *testing.T) {
	ann := access.Requester{Username: "ann"}
	without, with := reviews{&schedule{lacks: map[string]bool{"ann": true}}}, reviews{&schedule{}}
	namespaces := func(shop, hub map[string]string) client.Client {
		ns := func(name string, labels map[string]string) *corev1.Namespace {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: labels}}
		}
		return fake.NewClientBuilder().WithObjects(ns("shop", shop), ns("hub", hub)).Build()
	}
	closed, hub := map[string]string{sondev1.LabelOptOut: "true"}, map[string]string{sondev1.LabelHub: "true"}
	for name, c := range map[string]struct {
		recent, live   reviews
		cached, stored client.Client
		want           string
	}{
		"a right given back":  {without, with, namespaces(nil, hub), namespaces(nil, hub), ""},
		"a right withdrawn":   {without, without, namespaces(nil, hub), namespaces(nil, hub), sondev1.ReasonAccessRevoked},
		"a namespace opened":  {with, with, namespaces(closed, hub), namespaces(nil, hub), ""},
		"a namespace closed":  {with, with, namespaces(closed, hub), namespaces(closed, hub), sondev1.ReasonOptedOut},
		"a new hub":           {with, with, namespaces(nil, nil), namespaces(nil, hub), ""},
		"a hub no more":       {with, with, namespaces(nil, nil), namespaces(nil, nil), sondev1.ReasonHubNotAllowed},
		"the cache is enough": {with, without, namespaces(nil, hub), namespaces(closed, nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Client: c.cached, Live: c.stored, Recent: c.recent, Access: c.live}
			q := intercepting("a", "web-1")
			q.Namespace, q.Spec.TargetNamespace, q.Status.Phase = "hub", "shop", sondev1.InterceptActive
			err := r.checkNamespaces(t.Context(), q, stamp.Claim{TargetNamespaceUID: "uid-shop"})
			if err == nil && q.refusal == "" {
				err = r.review(t.Context(), q, ann, "shop")
			}
			if err != nil || q.refusal != c.want {
				t.Errorf("refusal %q, %v; want %q", q.refusal, err, c.want)
			}
		})
	}
}
