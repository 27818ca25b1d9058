// Package release is the protocol between the manager and the releaser, which runs Helm in a Job. The manager writes a Request into a
// Secret that the Job mounts. The releaser writes a Report as the termination message of its container.
package release

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Version of the protocol. A releaser refuses another one.
const Version = 1

// Places in the Job's Pod.
const (
	// Container of the Job's Pod.
	Container = "releaser"
	// RequestPath is where the Request is mounted.
	RequestPath = "/request/" + RequestKey
	// RequestKey of the Secret that holds the Request.
	RequestKey = "request.json"
	// ValuesPath is the directory below which documents with values are mounted: the first one as 0/values.yaml.
	ValuesPath = "/values"
	// ValuesFile of each of these directories.
	ValuesFile = "values.yaml"
	// CredentialsPath is the directory where the user name and the password for the chart's source are mounted, if there are any.
	CredentialsPath = "/credentials"
	// UsernameKey and PasswordKey are the keys of that Secret.
	UsernameKey = "username"
	PasswordKey = "password"
	// ReportPath is the termination message of the container.
	ReportPath = "/dev/termination-log"
)

// MaxReport of a report, in bytes. The kubelet cuts longer termination messages.
const MaxReport = 4096

// Bounds of what a report says. The manager writes it into a status.
const (
	maxMessage = 1800
	maxReason  = 64
	maxVersion = 128
	// maxUnix is the last second of the year 9999: RFC 3339 has no later one.
	maxUnix = 253402300799
	// MaxHistory is how many revisions Helm keeps.
	MaxHistory = 5
)

// Request says which release to make.
type Request struct {
	Version int `json:"version"`
	// Release and Namespace name the release.
	Release   string `json:"release"`
	Namespace string `json:"namespace"`
	// Anchor is the ConfigMap that owns every object of the release.
	Anchor Anchor `json:"anchor"`
	Chart  Chart  `json:"chart"`
	// Configuration is a YAML document with values in base64, as the user wrote it.
	Configuration string `json:"configuration,omitempty"`
	// ValuesFrom are the documents below ValuesPath, in their order. They win over Configuration, later ones over earlier ones.
	ValuesFrom []Document `json:"valuesFrom,omitempty"`
	// Values win over ValuesFrom.
	Values json.RawMessage `json:"values,omitempty"`
	// Global are the chart's global values. They win over all others.
	Global map[string]any `json:"global,omitempty"`
	// Drift says what to do if the release is as requested, but its objects were changed or deleted.
	Drift Drift `json:"drift,omitempty"`
	// Install and Upgrade bound the attempt, in seconds: until all objects are ready.
	Install int `json:"install"`
	Upgrade int `json:"upgrade"`
	// Remedy is set when all attempts are spent. The releaser then only makes the failed release good, and needs no chart.
	Remedy Remedy `json:"remedy,omitempty"`
	// SkipHooks leaves out the chart's hooks, because they have made an earlier remedy fail.
	SkipHooks bool `json:"skipHooks,omitempty"`
}

// Document is a key of a Secret or a ConfigMap that has values.
type Document struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Key  string `json:"key"`
}

// Secret reports whether the values must not be shown.
func (d Document) Secret() bool { return d.Kind == "Secret" }

func (d Document) String() string { return fmt.Sprintf("key %s of %s %s", d.Key, d.Kind, d.Name) }

// Remedy is what to do about a release whose last attempt has failed.
type Remedy string

// Values of Remedy.
const (
	// Rollback makes the last revision again whose objects were ready. Without one it is as Uninstall.
	Rollback  Remedy = "rollback"
	Uninstall Remedy = "uninstall"
)

// Drift is what to do about objects that were changed or deleted since the release.
type Drift string

// Values of Drift. Empty means that the objects are not looked at.
const (
	DriftWarn   Drift = "Warn"
	DriftRepair Drift = "Repair"
)

// Anchor identifies the ConfigMap that owns the objects.
type Anchor struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// Source says where a chart comes from.
type Source string

// Sources of charts.
const (
	Embedded Source = "embedded"
	OCI      Source = "oci"
	HTTP     Source = "http"
)

// Chart says which chart is released.
type Chart struct {
	// Source is Embedded if it is empty.
	Source Source `json:"source,omitempty"`
	// URL of the chart's repository: oci://host/path/chart for OCI, and https://host/path for HTTP.
	URL string `json:"url,omitempty"`
	// Name of the chart in an HTTP repository.
	Name string `json:"name,omitempty"`
	// Version is a semantic version or a range; empty is the newest one.
	Version string `json:"version,omitempty"`
	// Digest is sha256: and 64 hexadecimal digits: of the manifest in a registry, or of the archive. No other chart is used.
	Digest string `json:"digest,omitempty"`
	// SecretRef is the name of the Secret below CredentialsPath, or empty.
	SecretRef string `json:"secretRef,omitempty"`
	// CABundle has certificates in PEM that the server's is checked against, besides those of the releaser's image.
	CABundle []byte `json:"caBundle,omitempty"`
}

// ParseRequest reads a request.
func ParseRequest(b []byte) (*Request, error) {
	var r Request
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	switch {
	case r.Version != Version:
		return nil, fmt.Errorf("read the request: version %d, and this releaser knows %d: upgrade its image with the operator's", r.Version, Version)
	case r.Chart.Source != "" && r.Chart.Source != Embedded && r.Chart.Source != OCI && r.Chart.Source != HTTP:
		return nil, fmt.Errorf("read the request: source %q is none", r.Chart.Source)
	case r.Remedy != "" && r.Remedy != Rollback && r.Remedy != Uninstall:
		return nil, fmt.Errorf("read the request: remedy %q is none", r.Remedy)
	case r.Release == "" || r.Namespace == "" || r.Anchor.Name == "" || r.Anchor.UID == "":
		return nil, errors.New("read the request: release, namespace or anchor is missing")
	}
	return &r, nil
}

// Outcome of an attempt.
type Outcome string

// Outcomes of an attempt.
const (
	// Ready: the release is as requested, and its objects are ready.
	Ready Outcome = "Ready"
	// Retry: another attempt may succeed.
	Retry Outcome = "Retry"
	// Stalled: another attempt would fail in the same way.
	Stalled Outcome = "Stalled"
)

// Reasons of a report.
const (
	ReasonReleased         = "Released"         //
	ReasonUpToDate         = "UpToDate"         // the release was as requested already
	ReasonDrifted          = "Drifted"          // objects were changed or deleted since the release
	ReasonDriftRepaired    = "DriftRepaired"    // and they are as the chart says again
	ReasonBadValues        = "BadValues"        // the values are no base64 or no YAML
	ReasonValuesNotFound   = "ValuesNotFound"   // a document of valuesFrom does not exist
	ReasonSchemaInvalid    = "SchemaInvalid"    // the chart's schema refuses the values, or is itself refused
	ReasonChartNotFound    = "ChartNotFound"    // no chart has this version
	ReasonDigestMismatch   = "DigestMismatch"   // the chart is another one than the spec's digest says
	ReasonChartForbidden   = "ChartForbidden"   // the chart's source refuses the credentials
	ReasonChartInvalid     = "ChartInvalid"     // the chart cannot be read or rendered
	ReasonScopeRefused     = "ScopeRefused"     // the chart has objects outside of the namespace
	ReasonImmutable        = "Immutable"        // a field of an object cannot be changed
	ReasonForbidden        = "Forbidden"        // the ServiceAccount may not do it
	ReasonObjectInvalid    = "ObjectInvalid"    // the API server refuses an object
	ReasonReleaseNameTaken = "ReleaseNameTaken" // a release of this name exists that is not the Collector's
	ReasonUnavailable      = "Unavailable"      // the API server or a repository does not answer
	ReasonLockLost         = "LockLost"         // the releaser lost its lock, perhaps in the middle of an upgrade
	ReasonNotReady         = "NotReady"         // the objects did not become ready, or a hook failed
	ReasonReleaserFailed   = "ReleaserFailed"   // the releaser ended without a report
	ReasonEarlierRelease   = "EarlierRelease"   // the release of a deleted Collector of this name is being removed
)

// Deployed is the status of the revision whose objects were ready last.
const Deployed = "deployed"

// Remediations of a release that failed.
const (
	RolledBack  = "RolledBack"
	Uninstalled = "Uninstalled"
)

// Report is the result of an attempt.
type Report struct {
	Version int     `json:"version"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
	// Message for people, in one line.
	Message string `json:"message"`
	// Uncounted: the attempt failed because something did not answer, so it does not count as one of the retries.
	Uncounted bool `json:"uncounted,omitempty"`
	// Remediated is how a failed release was made good, or empty.
	Remediated string `json:"remediated,omitempty"`
	// Revision that is deployed, and its chart; zero if none is.
	Revision     int    `json:"revision,omitempty"`
	ChartVersion string `json:"chartVersion,omitempty"`
	// History has the newest revision first.
	History []Revision `json:"history,omitempty"`
}

// Revision is a revision of a release.
type Revision struct {
	Revision     int    `json:"revision"`
	ChartVersion string `json:"chartVersion,omitempty"`
	Status       string `json:"status,omitempty"`
	// Unix time of the release, in seconds.
	Unix int64 `json:"unix,omitempty"`
}

// Marshal returns the report, cut to MaxReport bytes.
func (r Report) Marshal() ([]byte, error) {
	r.Version = Version
	r.Message = text.OneLine(r.Message, maxMessage)
	if len(r.History) > MaxHistory {
		r.History = r.History[:MaxHistory]
	}
	b, err := json.Marshal(r)
	if err == nil && len(b) > MaxReport { // characters that JSON writes in six bytes
		r.Message, r.History = text.OneLine(r.Message, maxMessage/6), nil
		b, err = json.Marshal(r)
	}
	if err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	return b, nil
}

// ParseReport reads a report. A tenant's ServiceAccount runs the releaser, so the report is foreign: it is bounded here, and only the
// tenant's own status shows it.
func ParseReport(b []byte) (*Report, error) {
	if len(b) > MaxReport {
		return nil, fmt.Errorf("read the report: %d bytes, at most %d", len(b), MaxReport)
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	switch {
	case r.Version != Version:
		return nil, fmt.Errorf("read the report: version %d, want %d", r.Version, Version)
	case r.Outcome != Ready && r.Outcome != Retry && r.Outcome != Stalled:
		return nil, fmt.Errorf("read the report: outcome %q is none", text.OneLine(string(r.Outcome), maxReason))
	case !isReason(r.Reason):
		return nil, fmt.Errorf("read the report: reason %q is none", text.OneLine(r.Reason, maxReason))
	case r.Remediated != "" && r.Remediated != RolledBack && r.Remediated != Uninstalled:
		return nil, fmt.Errorf("read the report: remediated %q is none", text.OneLine(r.Remediated, maxReason))
	case r.Revision < 0:
		return nil, fmt.Errorf("read the report: revision %d", r.Revision)
	}
	r.Message, r.ChartVersion = text.OneLine(r.Message, maxMessage), text.OneLine(r.ChartVersion, maxVersion)
	if len(r.History) > MaxHistory {
		r.History = r.History[:MaxHistory]
	}
	for i := range r.History {
		if err := r.History[i].bound(); err != nil {
			return nil, err
		}
	}
	return &r, nil
}

// bound refuses numbers that no status may have, and cuts texts.
func (h *Revision) bound() error {
	if h.Revision < 1 || h.Unix < 0 || h.Unix > maxUnix {
		return fmt.Errorf("read the report: revision %d at %d", h.Revision, h.Unix)
	}
	h.ChartVersion, h.Status = text.OneLine(h.ChartVersion, maxVersion), text.OneLine(h.Status, maxReason-1)
	return nil
}

// isReason reports whether a condition may have this reason.
func isReason(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= maxReason
}
