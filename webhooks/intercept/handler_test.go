package intercept

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

type changes = map[string]any

// creation asks for an InterceptRequest in home. A change of nil takes a field away.
func creation(t *testing.T, home string, changed changes) webhook.AdmissionRequest {
	t.Helper()
	spec := changes{
		"targetDeployment": "web", "targetContainerPort": 8080, "gracePeriod": "10s", "expiresAfter": "8h", "clientKey": "k",
		"mode": "Steal", "probes": "App", "onDisconnect": "App",
	}
	maps.Copy(spec, changed)
	maps.DeleteFunc(spec, func(_ string, v any) bool { return v == nil })
	return webhooktest.Request(t, admissionv1.Create, sondev1.InterceptKind, home,
		changes{"metadata": changes{"namespace": home, "name": "mine"}, "spec": spec}, nil)
}

func handler(t *testing.T, objects ...client.Object) *Handler {
	t.Helper()
	rights := webhooktest.May("pods/shop", "pods/hub")
	rights.Verb = sondev1.VerbIntercept
	reader := webhooktest.Reader(t, append(webhooktest.Objects(), objects...)...)
	return &Handler{
		Live: reader, Cache: reader, Reviews: rights, Key: webhooktest.Key, OperatorNamespace: webhooktest.OperatorNamespace, Clock: webhooktest.Clock(),
	}
}

// other is an InterceptRequest that exists, named hers.
func other(change func(*sondev1.InterceptRequest)) *sondev1.InterceptRequest {
	r := &sondev1.InterceptRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "hers"},
		Spec:       sondev1.InterceptRequestSpec{TargetDeployment: "web", TargetContainerPort: 8080},
	}
	if change != nil {
		change(r)
	}
	return r
}

func header() changes {
	return changes{"match": changes{"require": "All", "headers": []changes{{"name": "X-Dev", "exact": "alice"}}}}
}

func takes(name, value string) func(*sondev1.InterceptRequest) {
	return func(r *sondev1.InterceptRequest) {
		r.Spec.Match = &sondev1.InterceptMatch{Headers: []sondev1.HeaderMatch{{Name: name, TextMatch: sondev1.TextMatch{Exact: &value}}}}
	}
}

func TestCreate(t *testing.T) {
	paused := &corev1.ConfigMap{ObjectMeta: webhooktest.Meta(webhooktest.OperatorNamespace, "sonde-config"), Data: map[string]string{"paused": "true"}}
	for name, tc := range map[string]struct {
		home    string // shop if empty
		change  changes
		objects []client.Object
		// code of the refusal, and parts of its message; 0 means that it is admitted.
		code int32
		want []string
	}{
		"a port":                   {},
		"a match":                  {change: header()},
		"a Pod":                    {change: changes{"targetDeployment": nil, "targetPod": "one"}},
		"no target":                {change: changes{"targetDeployment": nil}, code: webhooktest.Invalid, want: []string{"name one target"}},
		"two targets":              {change: changes{"targetPod": "one"}, code: webhooktest.Invalid, want: []string{"name one target"}},
		"no such Deployment":       {change: changes{"targetDeployment": "nothing"}, code: webhooktest.Invalid, want: []string{"Deployment shop/nothing not found", "kubectl get deployments -n shop"}},
		"no port":                  {change: changes{"targetContainerPort": 0}, code: webhooktest.Invalid, want: []string{"targetContainerPort"}},
		"no such container":        {change: changes{"targetContainer": "sidecar"}, code: webhooktest.Invalid, want: []string{"no container sidecar"}},
		"the node's network":       {change: changes{"targetDeployment": "edge"}, code: webhooktest.Invalid, want: []string{"hostNetwork"}},
		"a bad regular expression": {change: changes{"match": changes{"path": changes{"regex": "("}}}, code: webhooktest.Invalid, want: []string{"match: path: regex"}},
		"a large match":            {change: changes{"match": changes{"path": changes{"exact": strings.Repeat("\x01", 1000)}}}, code: webhooktest.Invalid, want: []string{"6021 bytes as JSON"}},
		"a huge regular expression": {
			change: changes{"match": changes{"path": changes{"regex": "(?:" + strings.Repeat(".?", 500) + "){1000}"}}}, code: webhooktest.Invalid, want: []string{"repeat less"},
		},
		"a huge class of characters": {
			change: changes{"match": changes{"path": changes{"regex": `\PL{990}`}}}, code: webhooktest.Invalid, want: []string{"smaller classes"},
		},
		"16 headers":               {change: changes{"match": changes{"headers": headers(16, "[a-z]{1,50}")}}},
		"17 headers":               {change: changes{"match": changes{"headers": headers(17, "x")}}, code: webhooktest.Invalid, want: []string{"match.headers: it has 17 conditions, and may have 16"}},
		"no condition":             {change: changes{"match": changes{}}, code: webhooktest.Invalid, want: []string{"no condition"}},
		"a bad header name":        {change: changes{"match": changes{"headers": []changes{{"name": "a b", "exact": "x"}}}}, code: webhooktest.Invalid, want: []string{"a b"}},
		"too long":                 {change: changes{"expiresAfter": "25h"}, code: webhooktest.Invalid, want: []string{"between 10s and 24h"}},
		"without the right":        {home: "bank", change: changes{"targetDeployment": "vault"}, code: webhooktest.Forbidden, want: []string{"intercept"}},
		"another namespace":        {change: changes{"targetNamespace": "bank", "targetDeployment": "vault"}, code: webhooktest.Forbidden, want: []string{sondev1.LabelHub}},
		"from a hub":               {home: "hub", change: changes{"targetNamespace": "shop"}},
		"the operator's namespace": {home: webhooktest.OperatorNamespace, code: webhooktest.Forbidden, want: []string{"operator's own"}},
		"while paused":             {objects: []client.Object{paused}, code: webhooktest.Forbidden, want: []string{"paused"}},
		"the port is taken":        {objects: []client.Object{other(nil)}, code: webhooktest.Invalid, want: []string{"InterceptRequest shop/hers takes every connection", "add a match", "kubectl sonde down hers -n shop"}},
		"a match beside all":       {change: header(), objects: []client.Object{other(nil)}},
		"another port":             {change: changes{"targetContainerPort": 9090}, objects: []client.Object{other(nil)}},
		"the same match":           {change: header(), objects: []client.Object{other(takes("X-Dev", "alice"))}, code: webhooktest.Invalid, want: []string{"shop/hers has the same match", "kubectl sonde down hers -n shop"}},
		"a copied key": {
			change: changes{"targetContainerPort": 9090}, objects: []client.Object{other(func(r *sondev1.InterceptRequest) { r.Spec.ClientKey = "k" })},
			code: webhooktest.Invalid, want: []string{"another InterceptRequest has the same key"},
		},
		"the same match in another case": {
			change: changes{"match": changes{"headers": []changes{{"name": "x-env", "exact": "dev"}, {"name": "X-DEV", "exact": "alice"}}}},
			objects: []client.Object{other(func(r *sondev1.InterceptRequest) {
				r.Spec.Match = &sondev1.InterceptMatch{Headers: []sondev1.HeaderMatch{
					{Name: "x-dev", TextMatch: sondev1.TextMatch{Exact: new("alice")}}, {Name: "X-Env", TextMatch: sondev1.TextMatch{Exact: new("dev")}},
				}}
			})},
			code: webhooktest.Invalid, want: []string{"shop/hers has the same match"},
		},
		"the same condition twice": {
			change:  changes{"match": changes{"require": "Any", "headers": []changes{{"name": "X-Dev", "exact": "alice"}, {"name": "x-dev", "exact": "alice"}}}},
			objects: []client.Object{other(takes("X-Dev", "alice"))}, code: webhooktest.Invalid, want: []string{"shop/hers has the same match"},
		},
		"any of the same condition": {
			change:  changes{"match": changes{"require": "Any", "headers": []changes{{"name": "X-Dev", "exact": "alice"}}}},
			objects: []client.Object{other(takes("X-Dev", "alice"))}, code: webhooktest.Invalid, want: []string{"shop/hers has the same match"},
		},
		"any of several conditions": {
			change: changes{"match": changes{"require": "Any", "path": changes{"exact": "/"}, "headers": []changes{{"name": "X-Dev", "exact": "alice"}}}},
			objects: []client.Object{other(func(r *sondev1.InterceptRequest) {
				takes("X-Dev", "alice")(r)
				r.Spec.Match.Path = &sondev1.TextMatch{Exact: new("/")}
			})},
		},
		"a value in another case":   {change: header(), objects: []client.Object{other(takes("x-dev", "Alice"))}},
		"another match":             {change: header(), objects: []client.Object{other(takes("X-Dev", "bob"))}},
		"too many that have ended":  {objects: many(maxExisting), code: http.StatusTooManyRequests, want: []string{"has 500 InterceptRequests", "delete those that have ended"}},
		"many that have ended":      {objects: many(maxExisting - 1)},
		"the other one has expired": {objects: []client.Object{other(func(r *sondev1.InterceptRequest) { r.Status.Phase = sondev1.InterceptEnded })}},
	} {
		t.Run(name, func(t *testing.T) {
			home := tc.home
			if home == "" {
				home = "shop"
			}
			h := handler(t, tc.objects...)
			req := creation(t, home, tc.change)
			answer := h.Handle(t.Context(), req)
			if tc.code != 0 {
				webhooktest.Refused(t, answer, tc.code, tc.want...)
				return
			}
			if !answer.Allowed {
				t.Fatalf("refused: %s", answer.Result.Message)
			}
			var r sondev1.InterceptRequest
			webhooktest.Patched(t, req, answer, &r)
			claim, err := stamp.Verify(webhooktest.Key, home, sondev1.InterceptKind, &r.Spec, r.Annotations, webhooktest.Now)
			if err != nil || claim.Requester.Username != "alice" {
				t.Errorf("stamp: %v, requester %q", err, claim.Requester.Username)
			}
		})
	}
}

// TestUndeclaredPort: a port that no container declares may be the Service's, so a warning names the declared ones.
func TestUndeclaredPort(t *testing.T) {
	spec := &corev1.PodSpec{Containers: []corev1.Container{
		{Name: "web", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}, {Name: "metrics", Ports: []corev1.ContainerPort{{ContainerPort: 9090}}},
	}}
	if w := undeclared(spec, 9090); len(w) != 0 {
		t.Errorf("warnings of a declared port: %q", w)
	}
	if w := undeclared(&corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}}, 80); len(w) != 0 {
		t.Errorf("warnings of Pods that declare no port: %q", w)
	}
	h := handler(t, &appsv1.Deployment{
		ObjectMeta: webhooktest.Meta("shop", "declares"), Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: *spec}},
	})
	answer := h.Handle(t.Context(), creation(t, "shop", changes{"targetDeployment": "declares", "targetContainerPort": 80}))
	if !answer.Allowed || len(answer.Warnings) != 1 || !strings.Contains(answer.Warnings[0], "declares port 80 (they declare 8080, 9090)") {
		t.Errorf("allowed %t, warnings %q", answer.Allowed, answer.Warnings)
	}
}

// TestConditionsThatNoRequestMeets: a path and a method that no request has are refused, with what to write.
func TestConditionsThatNoRequestMeets(t *testing.T) {
	for name, tc := range map[string]struct {
		match changes
		want  string // what to write; empty if it is admitted
	}{
		"a path":                       {match: changes{"path": changes{"exact": "/cart"}}},
		"a path with a URL":            {match: changes{"path": changes{"prefix": "/go/http://x"}}},
		"all servers":                  {match: changes{"path": changes{"exact": "*"}, "method": changes{"exact": "OPTIONS"}}},
		"a tunnel":                     {match: changes{"path": changes{"exact": "shop.example:443"}, "method": changes{"exact": "CONNECT"}}},
		"a regular expression":         {match: changes{"path": changes{"regex": "[^c]cart"}, "method": changes{"regex": "(?i)get"}}},
		"an optional letter":           {match: changes{"path": changes{"regex": "a?/cart"}}},
		"one with and one without /":   {match: changes{"path": changes{"regex": "cart|/basket"}}},
		"no slash in a regex":          {match: changes{"path": changes{"regex": "v[12]/.*"}}, want: `no path matches "v[12]/.*" as a whole, because a path begins with /: write "/v[12]/.*"`},
		"a URL in a regex":             {match: changes{"path": changes{"regex": "http://shop.example/v1/.*"}}, want: `write "/v1/.*"`},
		"no slash at its beginning":    {match: changes{"path": changes{"regex": "^v1"}}, want: `write "/v1"`},
		"no slash":                     {match: changes{"path": changes{"exact": "cart"}}, want: `match.path: no request has the path "cart", because a path begins with / and has no query: write "/cart"`},
		"a prefix without a slash":     {match: changes{"path": changes{"prefix": "api/"}, "method": changes{"exact": "GET"}}, want: `write "/api/"`},
		"an empty path":                {match: changes{"path": changes{"exact": ""}}, want: `write "/"`},
		"a prefix of a star":           {match: changes{"path": changes{"prefix": "*"}}, want: `write "/*"`},
		"a query":                      {match: changes{"path": changes{"exact": "/cart?id=1"}}, want: `write "/cart"`},
		"a URL":                        {match: changes{"path": changes{"exact": "http://shop.example/cart?id=1"}}, want: `write "/cart"`},
		"a host":                       {match: changes{"path": changes{"exact": "http://shop.example"}}, want: `write "/"`},
		"a method":                     {match: changes{"method": changes{"exact": "PATCH"}}},
		"another method":               {match: changes{"method": changes{"exact": "purge"}}},
		"the beginning of methods":     {match: changes{"method": changes{"prefix": "P"}}},
		"a lower case method":          {match: changes{"method": changes{"exact": "get"}}, want: `match.method: no request has the method "get", because the standard ones are in upper case: write "GET"`},
		"a mixed case method":          {match: changes{"method": changes{"exact": "Connect"}, "path": changes{"exact": "/"}}, want: `write "CONNECT"`},
		"a blank in a path":            {match: changes{"path": changes{"exact": "/a b"}}, want: `match.path: no request has blanks there, but "/a b" does: write %20 for a blank, as the request does`},
		"a blank in a path's prefix":   {match: changes{"path": changes{"prefix": "/a b"}}, want: `write %20`},
		"a blank in a method":          {match: changes{"method": changes{"exact": "G T"}}, want: `match.method: no request has blanks there, but "G T" does: remove the blanks`},
		"a blank in a server's name":   {match: changes{"serverName": changes{"exact": "a b"}}, want: `match.serverName: no request has blanks there, but "a b" does: remove the blanks`},
		"blanks around a header":       {match: changes{"headers": []changes{{"name": "a", "exact": " b"}}}, want: `match.headers: no request has blanks around the value of a header, but " b" of a does: remove them`},
		"blanks in a header":           {match: changes{"headers": []changes{{"name": "a", "exact": "b c"}}}},
		"a blank before a beginning":   {match: changes{"headers": []changes{{"name": "a", "prefix": " b"}}}, want: `no value of a header begins with a blank, but " b" of a does`},
		"a blank after a beginning":    {match: changes{"headers": []changes{{"name": "a", "prefix": "b "}}}},
		"a lower case beginning of it": {match: changes{"method": changes{"prefix": "po"}}, want: `write "PO"`},
	} {
		t.Run(name, func(t *testing.T) {
			answer := handler(t).Handle(t.Context(), creation(t, "shop", changes{"match": tc.match}))
			if tc.want != "" {
				webhooktest.Refused(t, answer, webhooktest.Invalid, tc.want)
			} else if !answer.Allowed {
				t.Errorf("refused: %s", answer.Result.Message)
			}
		})
	}
}

// headers returns conditions on a header.
func headers(n int, regex string) []changes {
	return slices.Repeat([]changes{{"name": "a", "regex": regex}}, n)
}

// TestManyConditionsTakeBoundedMemory: the schema bounds the conditions after the webhook. 3,000 that were compiled took 186 MiB.
func TestManyConditionsTakeBoundedMemory(t *testing.T) {
	h := handler(t)
	req := creation(t, "shop", changes{"match": changes{"headers": headers(3000, `\PL{999}`)}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	answer := h.Handle(t.Context(), req)
	runtime.ReadMemStats(&after)
	webhooktest.Refused(t, answer, webhooktest.Invalid, "bytes as JSON, and may have 4096")
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 8<<20 {
		t.Errorf("a review of %d KiB takes %d KiB", len(req.Object.Raw)>>10, taken>>10)
	}
}

// many returns ended InterceptRequests of namespace shop.
func many(n int) []client.Object {
	var all []client.Object
	for i := range n {
		r := &sondev1.InterceptRequest{ObjectMeta: webhooktest.Meta("shop", fmt.Sprint("ended-", i))}
		r.Status.Phase = sondev1.InterceptEnded
		all = append(all, r)
	}
	return all
}
