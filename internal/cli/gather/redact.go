package gather

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// redacted replaces secrets.
const redacted = "REDACTED"

// dropped annotations are copies of whole objects, which may hold secrets.
var dropped = []string{"kubectl.kubernetes.io/last-applied-configuration"}

// stamped annotations prove who requested a capture or its end.
var stamped = []string{v1alpha1.AnnotationStamp, v1alpha1.AnnotationRequester, v1alpha1.AnnotationStoppedBy}

// WebhookPath matches the path of a webhook in an error of the API server or in a log. The first group may be shown;
// the rest is a secret of the operator.
var WebhookPath = regexp.MustCompile(`(/mutate-[-a-z0-9]+)/[0-9a-f]+(\?timeout=\w+)?`)

// secrets in texts: the webhooks' paths, private keys, tokens of Kubernetes, which are three parts of base64, and the user and the
// password in a URL. OLM writes the cluster's proxy into the environment of operators.
var secrets = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{WebhookPath, "$1/" + redacted},
	// Only what a key has may be between its first and its last line. A stranger can write these two lines into a log or an object, and all
	// between them would be missing. A quotation mark or a dot, which each line of a log and each object has, ends the match.
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=:,\s-]|\\+[nrt])*?-----END [A-Z ]*PRIVATE KEY-----`), redacted},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}`), redacted},
	{regexp.MustCompile(`://[^/\s"']+@`), "://" + redacted + "@"},
}

// text redacts secrets in a text.
func text(b []byte) []byte {
	for _, s := range secrets {
		b = s.pattern.ReplaceAll(b, []byte(s.with))
	}
	return b
}

// object redacts secrets in an object, and removes fields that do not help.
func object(o *unstructured.Unstructured) {
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	for _, a := range dropped {
		delete(annotations, a)
	}
	for _, a := range stamped {
		if _, ok := annotations[a]; ok {
			annotations[a] = redacted
		}
	}
	if kind := o.GetKind(); strings.HasPrefix(kind, "FluentPVC") || kind == v1alpha1.CollectorKind || kind == "InterceptRequest" {
		copies(annotations)
	}
	o.SetAnnotations(annotations)
	switch kind := o.GetKind(); {
	case kind == "ResultAccess":
		_ = unstructured.SetNestedField(o.Object, redacted, "spec", "tokenHash") // an object without spec has none
	case strings.HasPrefix(kind, "FluentPVC"):
		values(o.Object["spec"])
	case kind == v1alpha1.CollectorKind:
		chartValues(o.Object)
	case kind == "InterceptRequest":
		headers(o.Object)
	case strings.HasSuffix(kind, "WebhookConfiguration"):
		paths(o.Object)
	}
}

// copies redacts annotations that may have the whole object, as other tools write them.
func copies(annotations map[string]string) {
	for key, value := range annotations {
		if strings.HasPrefix(strings.TrimSpace(value), "{") || len(value) > 1<<10 {
			annotations[key] = redacted
		}
	}
}

// paths redacts the paths of webhooks.
func paths(configuration map[string]any) {
	webhooks, _, _ := unstructured.NestedSlice(configuration, "webhooks")
	for _, w := range webhooks {
		hook, ok := w.(map[string]any)
		if path, found, _ := unstructured.NestedString(hook, "clientConfig", "service", "path"); ok && found {
			kept, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
			_ = unstructured.SetNestedField(hook, "/"+kept+"/"+redacted, "clientConfig", "service", "path")
		}
	}
	_ = unstructured.SetNestedSlice(configuration, webhooks, "webhooks")
}

// chartValues redacts the Helm values of a Collector, which charts take passwords from. The names of values stay.
func chartValues(collector map[string]any) {
	if _, found, _ := unstructured.NestedFieldNoCopy(collector, "spec", "collector", "configuration"); found {
		_ = unstructured.SetNestedField(collector, redacted, "spec", "collector", "configuration")
	}
	if all, found, _ := unstructured.NestedFieldNoCopy(collector, "spec", "values"); found {
		_ = unstructured.SetNestedField(collector, leaves(all), "spec", "values")
	}
}

// leaves returns a value with all texts, numbers and booleans in it redacted.
func leaves(in any) any {
	switch v := in.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = leaves(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = leaves(inner)
		}
	default:
		return redacted
	}
	return in
}

// headers redacts what an InterceptRequest compares headers with, for example a cookie. Their names stay.
func headers(intercept map[string]any) {
	matches, _, _ := unstructured.NestedSlice(intercept, "spec", "match", "headers")
	for _, m := range matches {
		match, _ := m.(map[string]any)
		for field := range match {
			if field != "name" {
				match[field] = redacted
			}
		}
	}
	if len(matches) > 0 {
		_ = unstructured.SetNestedSlice(intercept, matches, "spec", "match", "headers")
	}
}

// values redacts the values of environment variables in the templates of a FluentPVC, wherever they are. Their names, and
// references to Secrets and ConfigMaps, stay.
func values(in any) {
	switch v := in.(type) {
	case map[string]any:
		for key, inner := range v {
			if key == "env" || key == "commonEnvs" {
				redactEnv(inner)
				continue
			}
			values(inner)
		}
	case []any:
		for _, inner := range v {
			values(inner)
		}
	}
}

func redactEnv(in any) {
	variables, _ := in.([]any)
	for _, variable := range variables {
		if v, ok := variable.(map[string]any); ok && v["value"] != nil {
			v["value"] = redacted
		}
	}
}
