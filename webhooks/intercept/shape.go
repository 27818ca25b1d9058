package intercept

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/route"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// checkShape refuses what the schema would refuse after the webhook, as far as the webhook uses it.
func checkShape(r *sondev1.InterceptRequest) error {
	s := &r.Spec
	targets := 0
	for _, set := range []bool{s.TargetPod != "", s.TargetDeployment != "", s.TargetRef != nil} {
		if set {
			targets++
		}
	}
	_, ref := r.AgentTarget()
	switch {
	case targets != 1:
		return admission.Invalid("name one target: set targetDeployment: NAME, targetPod: NAME, or targetRef: {kind: Deployment|StatefulSet|DaemonSet|Pod, name: NAME}")
	case s.TargetNamespace != "" && !admission.IsNamespaceName(s.TargetNamespace):
		return admission.Invalid("targetNamespace must be the name of a namespace, like shop; leave it out for the request's own")
	case !admission.IsObjectName(ref.Name):
		return admission.Invalid("the target's name must be that of a workload, like web")
	case s.TargetContainerPort < 1 || s.TargetContainerPort > 65535:
		return admission.Invalid("targetContainerPort must be a TCP port on which the workload listens, from 1 to 65535")
	}
	return cmp.Or(
		checkMatch(s.Match),
		admission.CheckTime("gracePeriod", s.GracePeriod, time.Second, 10*time.Minute, "between 1s and 10m"),
		admission.CheckTime("expiresAfter", s.ExpiresAfter, 10*time.Second, 24*time.Hour, "between 10s and 24h"),
	)
}

// maxHeaders is the schema's.
const maxHeaders = 16

// checkMatch bounds a match before anything compiles it.
func checkMatch(m *sondev1.InterceptMatch) error {
	match := route.Match(m)
	if match == nil {
		return nil
	}
	text, err := json.Marshal(match)
	switch {
	case err != nil:
		return admission.Invalid("match: %v", err)
	case len(text) > tunnel.MaxMatch:
		return admission.Invalid("match: it has %d bytes as JSON, and may have %d: use fewer or shorter conditions", len(text), tunnel.MaxMatch)
	case len(match.Headers) > maxHeaders:
		return admission.Invalid("match.headers: it has %d conditions, and may have %d: use fewer", len(match.Headers), maxHeaders)
	}
	return cmp.Or(checkPath(m), checkMethod(m.Method), checkBlanks(m))
}

// checkBlanks refuses conditions with blanks that no request has: a head of HTTP/1 separates its parts by them.
func checkBlanks(m *sondev1.InterceptMatch) error {
	const blanks = " \t\r\n"
	for _, condition := range []struct {
		field, advice string
		match         *sondev1.TextMatch
	}{
		{"path", "write %20 for a blank, as the request does", m.Path},
		{"method", "remove the blanks", m.Method},
		{"serverName", "remove the blanks", m.ServerName},
	} {
		for _, text := range textsOf(condition.match) {
			if strings.ContainsAny(text, blanks) {
				return admission.Invalid("match.%s: no request has blanks there, but %q does: %s", condition.field, text, condition.advice)
			}
		}
	}
	for i := range m.Headers {
		h := &m.Headers[i]
		if h.Exact != nil && strings.Trim(*h.Exact, blanks) != *h.Exact {
			return admission.Invalid("match.headers: no request has blanks around the value of a header, but %q of %s does: remove them", *h.Exact, h.Name)
		}
		if h.Prefix != nil && strings.TrimLeft(*h.Prefix, blanks) != *h.Prefix {
			return admission.Invalid("match.headers: no value of a header begins with a blank, but %q of %s does: remove it", *h.Prefix, h.Name)
		}
	}
	return nil
}

// textsOf returns the value and the prefix that a condition compares with.
func textsOf(m *sondev1.TextMatch) (texts []string) {
	if m == nil {
		return nil
	}
	for _, text := range []*string{m.Exact, m.Prefix} {
		if text != nil {
			texts = append(texts, *text)
		}
	}
	return texts
}

// checkPath refuses a path that no request has. The carrier compares the path of "GET http://host/path", too, without scheme and host.
// Only the target of CONNECT is no path, but host and port.
func checkPath(m *sondev1.InterceptMatch) error {
	if m.Path == nil || m.Method != nil && m.Method.Exact != nil && *m.Method.Exact == http.MethodConnect {
		return nil
	}
	for _, p := range []*string{m.Path.Exact, m.Path.Prefix} {
		if p == nil || p == m.Path.Exact && *p == "*" { // of OPTIONS
			continue
		}
		if path := pathIn(*p); path != *p {
			return admission.Invalid("match.path: no request has the path %q, because a path begins with / and has no query: write %q", *p, path)
		}
	}
	if r := m.Path.Regex; r != nil && literal.MatchString(*r) && !strings.Contains(*r, "|") {
		meant := strings.TrimPrefix(*r, "^")
		if _, url, ok := strings.Cut(meant, "://"); ok {
			_, meant, _ = strings.Cut(url, "/")
		}
		return admission.Invalid("match.path: no path matches %q as a whole, because a path begins with /: write %q", *r, "/"+meant)
	}
	return nil
}

// literal is the beginning of regular expressions that match only what begins with a letter or a digit.
var literal = regexp.MustCompile(`^\^?[0-9A-Za-z]($|[^?*{])`)

// pathIn returns the path that the user of a condition means.
func pathIn(s string) string {
	s, _, _ = strings.Cut(s, "?")
	if strings.HasPrefix(s, "/") {
		return s
	}
	if _, after, ok := strings.Cut(s, "://"); ok {
		_, s, _ = strings.Cut(after, "/")
	}
	return "/" + s
}

// methods are those of RFC 9110, section 9, and PATCH. They all are in upper case, and other methods are compared as they are.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// checkMethod refuses a standard method, or the beginning of one, that is not in upper case.
func checkMethod(m *sondev1.TextMatch) error {
	if m == nil {
		return nil
	}
	for _, condition := range []struct {
		text  *string
		meets func(method, upper string) bool
	}{
		{m.Exact, func(method, upper string) bool { return method == upper }},
		{m.Prefix, strings.HasPrefix},
	} {
		if condition.text == nil {
			continue
		}
		text, upper := *condition.text, strings.ToUpper(*condition.text)
		if text != upper && slices.ContainsFunc(methods, func(method string) bool { return condition.meets(method, upper) }) {
			return admission.Invalid("match.method: no request has the method %q, because the standard ones are in upper case: write %q", text, upper)
		}
	}
	return nil
}

// compareHeaders orders the conditions of a match, so that matches can be compared.
func compareHeaders(a, b sondev1.HeaderMatch) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(textOf(a), textOf(b)))
}

func textOf(h sondev1.HeaderMatch) string {
	var parts []string
	for _, p := range []*string{h.Exact, h.Prefix, h.Regex} {
		part := "-"
		if p != nil {
			part = "+" + *p
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "\x00")
}
