package collector

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

type changes = map[string]any

// rights allow to create Jobs in these namespaces: to everyone, or as USER/NAMESPACE.
type rights []string

// ReviewJobs implements Rights.
func (r rights) ReviewJobs(_ context.Context, who access.Requester, namespace string) (access.Decision, error) {
	if slices.Contains(r, namespace) || slices.Contains(r, who.Username+"/"+namespace) {
		return access.Decision{Allowed: true}, nil
	}
	return access.Decision{Reason: "may not create jobs in " + namespace}, nil
}

func claimOf(namespaceUID string) stamp.Claim {
	return stamp.Claim{Requester: access.Requester{Username: "ann"}, TargetNamespaceUID: namespaceUID, IssuedAt: webhooktest.Clock().Now()}
}

func request(t *testing.T, op admissionv1.Operation, home string, changed changes, old any) webhook.AdmissionRequest {
	t.Helper()
	return webhooktest.Request(t, op, sondev1.CollectorKind, home, object(home, changed), old)
}

func object(home string, changed changes) changes {
	spec := changes{"collector": changes{"name": "collector"}, "tenant": changes{"reference": "SHOP", "instance": "prod"}}
	maps.Copy(spec, changed)
	return changes{"metadata": changes{"namespace": home, "name": "mine"}, "spec": spec}
}

func handler(t *testing.T, objects ...client.Object) *Handler {
	t.Helper()
	reader := webhooktest.Reader(t, append(webhooktest.Objects(), objects...)...)
	return &Handler{
		Cache: reader, Live: reader, Reviews: rights{"shop", "hub", "nowhere"},
		Key: webhooktest.Key, OperatorNamespace: webhooktest.OperatorNamespace, Clock: webhooktest.Clock(),
	}
}

// check wants a refusal with a code, or an admission if it is 0.
func check(t *testing.T, r webhook.AdmissionResponse, code int32, texts ...string) {
	t.Helper()
	if code != 0 {
		webhooktest.Refused(t, r, code, texts...)
	} else if !r.Allowed {
		t.Errorf("refused: %+v", r.Result)
	}
}

func TestCreate(t *testing.T) {
	encoded := func(s string) changes {
		return changes{"collector": changes{"name": "collector", "configuration": base64.StdEncoding.EncodeToString([]byte(s))}}
	}
	tenant := func(reference string) changes {
		return changes{"tenant": changes{"reference": reference, "instance": "prod"}}
	}
	for name, tc := range map[string]struct {
		home   string // shop if empty
		change changes
		code   int32 // 0 means that it is admitted
		want   []string
	}{
		"a tenant":                   {},
		"values":                     {change: changes{"values": changes{"image": "x"}}},
		"a configuration":            {change: encoded("image: x")},
		"wrapped base64":             {change: changes{"collector": changes{"name": "c", "configuration": "aW1h\nZ2U6\n IHg="}}},
		"no base64":                  {change: changes{"collector": changes{"name": "c", "configuration": "image: x"}}, code: webhooktest.Invalid, want: []string{"not base64", "base64 -w0"}},
		"no namespace's name":        {change: tenant("not_a_name"), code: webhooktest.Invalid, want: []string{"tenant.reference"}},
		"a foreign namespace":        {change: tenant("other"), code: webhooktest.Forbidden, want: []string{"hub"}},
		"from a hub, without rights": {home: "hub", change: tenant("other"), code: webhooktest.Forbidden, want: []string{"may not create jobs in other"}},
		"from a hub":                 {home: "hub"},
		"the operator's":             {home: webhooktest.OperatorNamespace, change: tenant(webhooktest.OperatorNamespace), code: webhooktest.Forbidden, want: []string{"the operator's own"}},
		"a namespace that is not":    {home: "hub", change: tenant("nowhere"), code: webhooktest.Invalid, want: []string{"namespace nowhere does not exist", "collector open -n nowhere"}},
		"too large":                  {change: changes{"values": changes{"a": strings.Repeat("x", maxSpec)}}, code: webhooktest.Invalid, want: []string{"may have 512"}},
		"retries alone":              {change: changes{"install": changes{"retries": 0}, "upgrade": changes{"retries": 5}}},
		"a long timeout":             {change: changes{"install": changes{"timeout": "2h"}}, code: webhooktest.Invalid, want: []string{"install.timeout", "between 10s and 1h"}},
	} {
		t.Run(name, func(t *testing.T) {
			home := tc.home
			if home == "" {
				home = "shop"
			}
			check(t, handler(t).Handle(t.Context(), request(t, admissionv1.Create, home, tc.change, nil)), tc.code, tc.want...)
		})
	}
	closed := &corev1.Namespace{ObjectMeta: webhooktest.Meta("", "hub2")}
	closed.Labels = map[string]string{sondev1.LabelOptOut: "true"}
	h := handler(t, closed)
	h.Reviews = rights{"hub2"}
	check(t, h.Handle(t.Context(), request(t, admissionv1.Create, "hub2", tenant("hub2"), nil)), webhooktest.Forbidden, sondev1.LabelOptOut)
}

// A namespace cannot fill the manager's cache with Collectors. Those that exist may change.
func TestManyCollectors(t *testing.T) {
	var others []client.Object
	for i := range maxPerNamespace {
		others = append(others, &sondev1.Collector{ObjectMeta: webhooktest.Meta("shop", fmt.Sprint("c-", i))})
	}
	h := handler(t, others...)
	check(t, h.Handle(t.Context(), request(t, admissionv1.Create, "shop", nil, nil)), http.StatusTooManyRequests, "has 1000 Collectors", "delete some")
	check(t, h.Handle(t.Context(), request(t, admissionv1.Create, "hub", nil, nil)), 0)
	check(t, h.Handle(t.Context(), request(t, admissionv1.Update, "shop", changes{"values": changes{"a": "b"}}, stamped(t, "uid-shop"))), 0)
}

// stamped is an object that the webhook has admitted for a namespace with this UID.
func stamped(t *testing.T, namespaceUID string) changes {
	t.Helper()
	o := object("shop", nil)
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var c sondev1.Collector
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	c.Namespace = "shop"
	annotations, err := stamp.SignCollector(webhooktest.Key, &c, claimOf(namespaceUID))
	if err != nil {
		t.Fatal(err)
	}
	all := changes{}
	for key, value := range annotations {
		all[key] = value
	}
	o["metadata"].(changes)["annotations"] = all
	return o
}

// The stamp binds the spec to whoever wrote it last. Who changes only labels does not become the requester, unless the stamp is not valid:
// then anyone who has the rights repairs it by any update, and others are not stopped.
func TestUpdate(t *testing.T) {
	before := object("shop", nil)
	h := handler(t)
	update := func(o changes) webhook.AdmissionResponse {
		return h.Handle(t.Context(), webhooktest.Request(t, admissionv1.Update, sondev1.CollectorKind, "shop", o, o))
	}
	if r := update(stamped(t, "uid-shop")); !r.Allowed || len(r.Patches) != 0 {
		t.Errorf("an update of nothing: %+v", r)
	}
	if r := update(before); !r.Allowed || len(r.Patches) == 0 {
		t.Errorf("an update without a stamp: %+v", r)
	}
	h.Reviews = rights{}
	if r := update(before); !r.Allowed || len(r.Patches) != 0 {
		t.Errorf("an update without a stamp, by a user without rights: %+v", r)
	}
	h = handler(t)
	if r := h.Handle(t.Context(), request(t, admissionv1.Update, "shop", changes{"cluster": "east"}, before)); !r.Allowed || len(r.Patches) == 0 {
		t.Errorf("an update of the spec: %+v", r)
	}
	h.Reviews = rights{}
	check(t, h.Handle(t.Context(), request(t, admissionv1.Update, "shop", changes{"cluster": "east"}, before)), webhooktest.Forbidden, "may not create jobs")
	forged := object("shop", nil)
	forged["metadata"].(changes)["annotations"] = changes{sondev1.AnnotationStamp: "00"}
	check(t, h.Handle(t.Context(), webhooktest.Request(t, admissionv1.Update, sondev1.CollectorKind, "shop", forged, before)), webhooktest.Forbidden, "may not create jobs")
}

func TestStampIsOfThisName(t *testing.T) {
	c := &sondev1.Collector{ObjectMeta: webhooktest.Meta("shop", "mine")}
	c.Spec.Tenant.Reference = "shop"
	var err error
	if c.Annotations, err = stamp.SignCollector(webhooktest.Key, c, claimOf("uid-shop")); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*sondev1.Collector){
		"another name":      func(c *sondev1.Collector) { c.Name = "hers" },
		"another namespace": func(c *sondev1.Collector) { c.Namespace = "other" },
		"another tenant":    func(c *sondev1.Collector) { c.Spec.Tenant.Reference = "other" },
	} {
		copied := c.DeepCopy()
		change(copied)
		if _, err := stamp.VerifyCollector(webhooktest.Key, copied); err == nil {
			t.Errorf("%s: the stamp is valid", name)
		}
	}
	if _, err := stamp.VerifyCollector(webhooktest.Key, c); err != nil {
		t.Error(err)
	}
}

// patchedClaim returns the claim of the object that an answer stores.
func patchedClaim(t *testing.T, req webhook.AdmissionRequest, r webhook.AdmissionResponse) stamp.Claim {
	t.Helper()
	c := &sondev1.Collector{}
	webhooktest.Patched(t, req, r, c)
	claim, err := stamp.VerifyCollector(webhooktest.Key, c)
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// The stamp is for the release's namespace as it is, and not for a later one of its name.
func TestStampNamesTheNamespace(t *testing.T) {
	for home, reference := range map[string]string{"shop": "SHOP", "hub": "shop"} {
		req := request(t, admissionv1.Create, home, changes{"tenant": changes{"reference": reference, "instance": "prod"}}, nil)
		r := handler(t).Handle(t.Context(), req)
		check(t, r, 0)
		if claim := patchedClaim(t, req, r); claim.TargetNamespaceUID != "uid-shop" || claim.Requester.Username != "alice" {
			t.Errorf("from %s: claim %+v", home, claim)
		}
	}
}

// A retry renews a stamp that does not hold: its user has to have the rights, and becomes the requester.
func TestRetry(t *testing.T) {
	const me = "alice/shop"
	for name, tc := range map[string]struct {
		before changes
		// other: labels change, and nobody retries.
		other  bool
		rights rights
		// gone: the namespace does not exist.
		gone bool
		code int32
		text string
		want string // requester of the new stamp; none if empty
	}{
		"the stamp holds": {before: stamped(t, "uid-shop"), rights: rights{"shop"}},
		"the stamp holds, by a user without rights":     {before: stamped(t, "uid-shop"), rights: rights{"ann/shop"}},
		"another namespace":                             {before: stamped(t, "uid-earlier"), rights: rights{me}, want: "alice"},
		"another namespace, by a user without rights":   {before: stamped(t, "uid-earlier"), rights: rights{"ann/shop"}, code: webhooktest.Forbidden, text: "may not create jobs in shop"},
		"another namespace, without a retry":            {before: stamped(t, "uid-earlier"), other: true, rights: rights{"shop"}},
		"no namespace":                                  {before: stamped(t, "uid-shop"), gone: true, rights: rights{"shop"}, code: webhooktest.Invalid, text: "namespace shop does not exist"},
		"no namespace, by a user without rights":        {before: stamped(t, "uid-shop"), gone: true, code: webhooktest.Forbidden, text: "may not create jobs in shop"},
		"a stamp of an earlier version":                 {before: stamped(t, ""), rights: rights{me}, want: "alice"},
		"a stamp of an earlier version, without rights": {before: stamped(t, ""), code: webhooktest.Forbidden, text: "may not create jobs in shop"},
		"no stamp":                                              {before: object("shop", nil), rights: rights{me}, want: "alice"},
		"no stamp, by a user without rights":                    {before: object("shop", nil), code: webhooktest.Forbidden, text: "may not create jobs in shop"},
		"the requester has lost the right":                      {before: stamped(t, "uid-shop"), rights: rights{me}, want: "alice"},
		"the requester has lost the right, without one":         {before: stamped(t, "uid-shop")},
		"the requester has lost the right, without a retry":     {before: stamped(t, "uid-shop"), other: true, rights: rights{me}},
		"a stamp of an earlier version, and labels are written": {before: stamped(t, ""), other: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := handler(t)
			if tc.gone {
				h.Live = webhooktest.Reader(t)
			}
			h.Reviews = tc.rights
			raw, err := json.Marshal(tc.before)
			if err != nil {
				t.Fatal(err)
			}
			after := changes{}
			if err := json.Unmarshal(raw, &after); err != nil {
				t.Fatal(err)
			}
			meta := after["metadata"].(changes)
			if meta["annotations"] == nil {
				meta["annotations"] = changes{}
			}
			meta["annotations"].(changes)[sondev1.AnnotationRetry] = "now"
			if tc.other {
				delete(meta["annotations"].(changes), sondev1.AnnotationRetry)
				meta["labels"] = changes{"a": "b"}
			}
			req := webhooktest.Request(t, admissionv1.Update, sondev1.CollectorKind, "shop", after, tc.before)
			r := h.Handle(t.Context(), req)
			check(t, r, tc.code, tc.text)
			if tc.want == "" {
				if len(r.Patches) != 0 {
					t.Errorf("patches %v, want none", r.Patches)
				}
				return
			}
			if claim := patchedClaim(t, req, r); claim.Requester.Username != tc.want || claim.TargetNamespaceUID != "uid-shop" {
				t.Errorf("claim %+v, want one of %s", claim, tc.want)
			}
		})
	}
}

// A retry is refused while the API server does not say which namespace there is: the stamp may have to be renewed.
func TestRetryWithoutAnAnswer(t *testing.T) {
	h := handler(t)
	h.Live = interceptor.NewClient(h.Live.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("no answer")
		},
	})
	before, after := stamped(t, "uid-shop"), stamped(t, "uid-shop")
	after["metadata"].(changes)["annotations"].(changes)[sondev1.AnnotationRetry] = "now"
	check(t, h.Handle(t.Context(), webhooktest.Request(t, admissionv1.Update, sondev1.CollectorKind, "shop", after, before)), webhooktest.Failed, "try again")
}
