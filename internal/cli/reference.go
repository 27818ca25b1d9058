package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
)

// reference to a capture as users write it: KIND/NAME, or NAME alone.
type reference struct {
	// kinds to try in this order.
	kinds []kind.Capture
	name  string
}

// shortNames of kinds in their CRDs.
var shortNames = map[string]string{"pcap": kind.PacketCapture.Name}

func parseReference(s string) (reference, error) {
	word, name, ok := strings.Cut(s, "/")
	if !ok {
		return reference{kind.Captures, s}, nil
	}
	word = strings.TrimSuffix(strings.ToLower(word), "."+v1alpha1.GroupVersion.Group) // as -o name prints it
	for _, k := range kind.Captures {
		if word != strings.ToLower(k.Name) && word != k.Resource && shortNames[word] != k.Name {
			continue
		}
		if name == "" || strings.Contains(name, "/") {
			break
		}
		return reference{[]kind.Capture{k}, name}, nil
	}
	return reference{}, fmt.Errorf("%q is not the name of a capture: write NAME, packetcapture/NAME or trace/NAME", s)
}

func parseReferences(all []string) ([]reference, error) {
	refs := make([]reference, 0, len(all))
	for _, s := range all {
		r, err := parseReference(s)
		if err != nil {
			return nil, err
		}
		refs = append(refs, r)
	}
	return refs, nil
}

// find calls act with an object of each kind, with only its name set, until one exists. act gets, changes or deletes
// it. If none exists, the error names all kinds.
func (r reference) find(namespace string, act func(v1alpha1.Capture) error) (v1alpha1.Capture, error) {
	var none error
	var names []string
	for i, k := range r.kinds {
		c := k.New()
		c.SetNamespace(namespace)
		c.SetName(r.name)
		err := act(c)
		switch {
		case err == nil:
			return c, nil
		case i == 0:
			none = err
		}
		if !apierrors.IsNotFound(err) && (i == 0 || !kindUnavailable(err)) {
			return nil, err
		}
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok && apierrors.IsNotFound(err) && !noSuchKind(status.Status()) {
			names = append(names, k.Name)
		}
	}
	return nil, r.notFound(none, names, namespace)
}

// notFound returns the error for a name that none of these kinds has: err, the API server's, if it is only one kind.
func (r reference) notFound(err error, kinds []string, namespace string) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || len(kinds) < 2 {
		return err
	}
	s := status.Status()
	s.Message = fmt.Sprintf("namespace %s has no %s named %q", namespace, strings.Join(kinds, " and no "), r.name)
	return &apierrors.StatusError{ErrStatus: s}
}

// get reads the capture.
func (r reference) get(ctx context.Context, conn *connection) (v1alpha1.Capture, error) {
	return r.find(conn.namespace, func(c v1alpha1.Capture) error {
		if err := conn.client.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return fmt.Errorf("get %s: %w", c.KindName(), err)
		}
		return nil
	})
}

// find connects to the cluster and reads the capture that a user names.
func (p *plugin) find(ctx context.Context, name string) (*connection, v1alpha1.Capture, error) {
	ref, err := parseReference(name)
	if err != nil {
		return nil, nil, err
	}
	conn, err := p.connect()
	if err != nil {
		return nil, nil, err
	}
	c, err := ref.get(ctx, conn)
	return conn, c, err
}

// kindUnavailable reports whether a newer kind is missing from the cluster or from the roles of the user, because the
// operator is older.
func kindUnavailable(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// resourceName returns the name of a capture as kubectl prints it.
func resourceName(c v1alpha1.Capture) string {
	return strings.ToLower(c.KindName()) + "." + v1alpha1.GroupVersion.Group + "/" + c.GetName()
}
