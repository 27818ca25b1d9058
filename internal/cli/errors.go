package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/gather"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/table"
)

// describe returns the printable text for an error. Errors of the API server and of webhooks are written as kubectl does,
// others after "error:".
func describe(err error) string { return printable(explain(err)) }

// clause is describe within a longer message, which begins with "error:" itself, or is a warning.
func clause(err error) string { return strings.TrimPrefix(describe(err), "error: ") }

// printable makes every line of a text Printable. Errors have texts of servers, and some have several lines.
func printable(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = table.Printable(l)
	}
	return strings.Join(lines, "\n")
}

func explain(err error) string {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		text := "error: " + err.Error()
		request, sent := errors.AsType[*url.Error](err)
		if dial, ok := errors.AsType[*net.OpError](err); sent && ok && dial.Op == "dial" {
			text += "\nThe API server cannot be reached: check the server of your kubeconfig (" + hostOf(request.URL) + "), or choose another cluster with --context"
		}
		return text
	}
	s := status.Status()
	if noSuchKind(s) {
		return fmt.Sprintf("error: this cluster has no %s: Sonde is not installed there, or is older than this plugin. "+
			"Install or upgrade it, or choose another cluster with --context", kindsOf(s))
	}
	if webhookUnavailable(s) {
		return "error: Sonde does not answer, so PacketCaptures, Traces and InterceptRequests cannot be created or stopped, only deleted. Ask a cluster admin to check that the Pods of Deployment sonde-manager are ready.\n" +
			"Error from server (" + string(s.Reason) + "): " + gather.WebhookPath.ReplaceAllString(s.Message, "/...")
	}
	if s.Reason == metav1.StatusReasonUnknown {
		return "Error from server: " + s.Message
	}
	text := fmt.Sprintf("Error from server (%s): %s", s.Reason, s.Message)
	switch {
	case roleMissing(s) && strings.HasSuffix(s.Message, " at the cluster scope"): // only requests with -A are
		text += "\nOmit -A, or ask a cluster admin for a ClusterRoleBinding to the ClusterRole sonde-view"
	case roleMissing(s) && s.Details.Kind == kind.Intercept.Resource:
		text += "\nAsk an admin for the ClusterRole sonde-intercept in " + namespaceOf(s)
	case roleMissing(s) && s.Details.Kind == bindingResource:
		text += "\nAsk an admin for the ClusterRole sonde-edit in " + namespaceOf(s)
	case roleMissing(s):
		text += fmt.Sprintf("\nAsk an admin for the ClusterRole sonde-edit in %s. To %s and to download, ask also for sonde-%[2]s in %s",
			namespaceOf(s), kindOf(s).Verb, targetNamespaceOf(err))
	}
	return text
}

// hostOf returns the server of a URL.
func hostOf(request string) string {
	u, err := url.Parse(request)
	if err != nil {
		return request
	}
	return u.Scheme + "://" + u.Host
}

// bindingResource is the resource of FluentPVCBindings, which are not captures.
const bindingResource = "fluentpvcbindings"

// kindsOf returns the plural of the kind that a status is about.
func kindsOf(s metav1.Status) string {
	switch s.Details.Kind {
	case bindingResource:
		return "FluentPVCBindings"
	case kind.Intercept.Resource:
		return kind.Intercept.Name + "s"
	}
	return kindOf(s).Name + "s"
}

// kindOf returns the kind that a status is about; PacketCapture where it names none that the plugin knows.
func kindOf(s metav1.Status) kind.Capture {
	for _, k := range kind.Captures {
		if s.Details.Kind == k.Resource {
			return k
		}
	}
	return kind.PacketCapture
}

// namespaceOf names the namespace of a request that RBAC refused.
func namespaceOf(s metav1.Status) string {
	if _, quoted, found := strings.Cut(s.Message, " in the namespace "); found {
		return "namespace " + strings.Trim(quoted, `"`)
	}
	return "that namespace"
}

// targetError is an error of a capture that has its target in another namespace.
type targetError struct {
	error
	namespace string
}

// Unwrap returns the error of the capture.
func (e *targetError) Unwrap() error { return e.error }

// targetNamespaceOf names the namespace in which the verb of a capture is needed.
func targetNamespaceOf(err error) string {
	if target, ok := errors.AsType[*targetError](err); ok {
		return "namespace " + target.namespace + ", where the target is"
	}
	return "the namespace of the target"
}

// webhookUnavailable reports whether a webhook of Sonde could not be called, rather than refused the request.
func webhookUnavailable(s metav1.Status) bool {
	return s.Reason == metav1.StatusReasonInternalError && strings.Contains(s.Message, "failed calling webhook") &&
		strings.Contains(s.Message, "."+v1alpha1.GroupVersion.Group)
}

// roleMissing reports whether RBAC refused the request. A refusal by a webhook names the missing role itself.
func roleMissing(s metav1.Status) bool {
	return s.Reason == metav1.StatusReasonForbidden && s.Details != nil && s.Details.Group == v1alpha1.GroupVersion.Group &&
		strings.Contains(s.Message, " cannot ")
}

// noSuchKind reports whether the CRD is missing rather than the object. The API server answers 404 to both.
func noSuchKind(s metav1.Status) bool {
	if s.Reason != metav1.StatusReasonNotFound || s.Details == nil {
		return false
	}
	for _, c := range s.Details.Causes {
		if c.Type == metav1.CauseTypeUnexpectedServerResponse {
			return true
		}
	}
	return s.Details.Name == ""
}
