// Package route turns InterceptRequests into the routes that Stowaway and the carriers know.
package route

import (
	"fmt"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/duration"
	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Match returns the match of a route; nil stays nil.
func Match(m *sondev1.InterceptMatch) *httpmatch.Match {
	if m == nil {
		return nil
	}
	to := &httpmatch.Match{Require: httpmatch.Require(m.Require), Method: text(m.Method), Path: text(m.Path), ServerName: text(m.ServerName)}
	for i := range m.Headers {
		h := &m.Headers[i]
		to.Headers = append(to.Headers, httpmatch.Header{Name: h.Name, Text: *text(&h.TextMatch)})
	}
	return to
}

func text(t *sondev1.TextMatch) *httpmatch.Text {
	if t == nil {
		return nil
	}
	return &httpmatch.Text{Exact: t.Exact, Prefix: t.Prefix, Regex: t.Regex}
}

// Build returns the route of an InterceptRequest to Pods with these UIDs.
func Build(r *sondev1.InterceptRequest, pods []string) (tunnel.Route, error) {
	grace, err := duration.Parse(r.Spec.GracePeriod)
	if err != nil {
		return tunnel.Route{}, fmt.Errorf("spec.gracePeriod: %w", err)
	}
	return tunnel.Route{
		ID: string(r.UID), Name: r.Namespace + "/" + r.Name, Created: r.CreationTimestamp.Time, ClientKey: tunnel.PublicKey(r.Spec.ClientKey),
		Port:  uint16(r.Spec.TargetContainerPort), //nolint:gosec // the schema bounds it
		Match: Match(r.Spec.Match), ProbesToClient: r.Spec.Probes == sondev1.InterceptClient, GracePeriod: grace, Pods: pods,
	}, nil
}
