package intercept

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/duration"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Request is the command line of an intercept.
type Request struct {
	Target          v1alpha1.TargetReference
	Namespace, Name string
	TargetNamespace string
	Container       string
	Port            int32
	// To is the address of the developer's process, host:port.
	To string
	// Headers are NAME=VALUE. Paths and the method are conditions of the API.
	Headers                     []string
	Path, PathPrefix, PathRegex string
	Method, ServerName          string
	// Any means that one condition is enough.
	Any                               bool
	Probes, ExpiresAfter, GracePeriod string
}

// Build returns the InterceptRequest to create, or an error that says which flag to change.
func (r *Request) Build(key tunnel.PublicKey) (*v1alpha1.InterceptRequest, error) {
	if r.Port < 1 || r.Port > 65535 {
		return nil, errors.New("--port: write the port on which the container listens, like --port 8080 or --port http")
	}
	host, port, err := splitAddress(r.To)
	if err != nil {
		return nil, err
	}
	match, err := r.match()
	if err != nil {
		return nil, err
	}
	for flag, value := range map[string]string{"--expires-after": r.ExpiresAfter, "--grace-period": r.GracePeriod} {
		if _, err := duration.Parse(value); value != "" && err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
	}
	side, err := probes(r.Probes)
	switch {
	case err != nil:
		return nil, err
	case side == v1alpha1.InterceptClient && match != nil:
		return nil, errors.New("--probes client: the app answers TCP probes if there are conditions. Omit --probes or the conditions")
	}
	o := &v1alpha1.InterceptRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name},
		Spec: v1alpha1.InterceptRequestSpec{
			TargetRef: &r.Target, TargetContainer: r.Container, TargetContainerPort: r.Port, DestinationIP: host, DestinationPort: port,
			Match: match, Probes: side, ExpiresAfter: r.ExpiresAfter, GracePeriod: r.GracePeriod, ClientKey: string(key),
		},
	}
	if r.TargetNamespace != r.Namespace {
		o.Spec.TargetNamespace = r.TargetNamespace
	}
	if r.Name == "" {
		o.GenerateName = r.Target.Name + "-"
	}
	return o, nil
}

// splitAddress reads HOST:PORT, or PORT of this machine.
func splitAddress(s string) (host string, port int32, err error) {
	address := s
	if !strings.Contains(s, ":") {
		address = "127.0.0.1:" + s
	}
	host, text, err := net.SplitHostPort(address)
	n, nerr := strconv.ParseUint(text, 10, 16)
	if err != nil || nerr != nil || n == 0 {
		return "", 0, fmt.Errorf("--to %q: write the address of your process with its port, like 127.0.0.1:8080", s)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return host, int32(n), nil
}

// Address of the developer's process.
func Address(o *v1alpha1.InterceptRequest) string {
	return net.JoinHostPort(o.Spec.DestinationIP, strconv.Itoa(int(o.Spec.DestinationPort)))
}

// match returns nil if there is no condition.
func (r *Request) match() (*v1alpha1.InterceptMatch, error) {
	headers, err := r.headers()
	if err != nil {
		return nil, err
	}
	path, err := r.path()
	if err != nil {
		return nil, err
	}
	m := &v1alpha1.InterceptMatch{Headers: headers, Path: path}
	if r.Method != "" {
		m.Method = &v1alpha1.TextMatch{Exact: &r.Method}
	}
	http := len(m.Headers) > 0 || m.Path != nil || m.Method != nil
	switch {
	case r.ServerName != "" && (http || r.Any):
		return nil, errors.New("--server-name stands alone, because TLS hides headers, path and method: omit the other conditions, and --any")
	case r.ServerName != "":
		m.ServerName = &v1alpha1.TextMatch{Exact: new(strings.ToLower(r.ServerName))}
	case !http && r.Any:
		return nil, errors.New("--any needs conditions: add --header, --path or --method")
	case !http:
		return nil, nil
	}
	m.Require = v1alpha1.MatchAll
	if r.Any {
		m.Require = v1alpha1.MatchAny
	}
	return m, nil
}

// RepeatedHeader returns the name of a header that must have two values, because all conditions must hold. Few requests repeat a header, so
// the user may have meant one of them.
func (r *Request) RepeatedHeader() string {
	values := map[string]string{}
	for _, h := range r.Headers {
		name, value, _ := strings.Cut(h, "=")
		name = strings.ToLower(name)
		if before, found := values[name]; found && before != value && !r.Any {
			return name
		}
		values[name] = value
	}
	return ""
}

func (r *Request) headers() (all []v1alpha1.HeaderMatch, err error) {
	for _, h := range r.Headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header %q: write NAME=VALUE, like x-user=alice", h)
		}
		if strings.TrimSpace(value) != value {
			return nil, fmt.Errorf("--header %q: no request has blanks around the value of a header: remove them", h)
		}
		all = append(all, v1alpha1.HeaderMatch{Name: name, TextMatch: v1alpha1.TextMatch{Exact: &value}})
	}
	return all, nil
}

// path returns nil if there is no condition on it.
func (r *Request) path() (m *v1alpha1.TextMatch, err error) {
	for _, text := range []struct {
		value string
		match v1alpha1.TextMatch
	}{
		{r.Path, v1alpha1.TextMatch{Exact: &r.Path}},
		{r.PathPrefix, v1alpha1.TextMatch{Prefix: &r.PathPrefix}},
		{r.PathRegex, v1alpha1.TextMatch{Regex: &r.PathRegex}},
	} {
		switch {
		case text.value == "":
		case m != nil:
			return nil, errors.New("--path, --path-prefix and --path-regex exclude each other: omit all but one")
		default:
			m = &text.match
		}
	}
	if _, err := regexp.Compile(r.PathRegex); err != nil {
		return nil, fmt.Errorf("--path-regex %q: write a regular expression of RE2, like /api/v[0-9]+/.*: %w", r.PathRegex, err)
	}
	return m, nil
}

func probes(s string) (v1alpha1.InterceptSide, error) {
	for _, side := range []v1alpha1.InterceptSide{v1alpha1.InterceptApp, v1alpha1.InterceptClient} {
		if strings.EqualFold(s, string(side)) {
			return side, nil
		}
	}
	if s == "" {
		return "", nil
	}
	return "", fmt.Errorf("--probes %q: write app or client", s)
}
