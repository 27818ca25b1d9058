// Package names finds which Pod or Service has an address, so that Wireshark can show its name. It asks the API server with the user's
// own rights, and never DNS.
package names

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	// page is how many objects one request lists.
	page = 500
	// maxPages bounds the objects of one list, so that a large cluster is not read whole.
	maxPages = 20
	// timeout of one Refresh.
	timeout = 10 * time.Second
)

// Directory collects the names of addresses during a capture. It is safe for concurrent use.
type Directory struct {
	source    Source
	namespace string

	mu sync.Mutex
	// local says that the user may list objects of the namespace only.
	local bool
	names map[netip.Addr]string // empty: several objects had the address
	sent  map[netip.Addr]string // by News
	cut   bool
	err   error
}

// New returns a Directory of the namespace and, if the user may list them, of all others.
func New(from Source, namespace string) *Directory {
	return &Directory{source: from, namespace: namespace, names: map[netip.Addr]string{}, sent: map[netip.Addr]string{}}
}

// Existence of an object during a capture.
type Existence int

const (
	// Absent is an object that did not exist, so its addresses were others'.
	Absent Existence = iota
	// Partly is one that had its addresses for a part of the capture, and others may have had them before. None of them gets a name.
	Partly
	// Present is one that had its addresses.
	Present
)

// Existed says whether an object existed during the capture.
type Existed func(created time.Time, uid string) Existence

// Refresh adds the Pods and Services that exist now and existed then. An error leaves the names as they are: see Note.
func (d *Directory) Refresh(ctx context.Context, existed Existed) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = nil
	for _, list := range []func(context.Context, Existed) error{d.pods, d.services} {
		if err := list(ctx, existed); err != nil && d.err == nil {
			d.err = err
		}
	}
}

func (d *Directory) pods(ctx context.Context, existed Existed) error {
	return d.list(ctx, "pods", func(p *object) {
		if p.Spec.HostNetwork || p.ended() {
			return // the addresses are the node's, or may be another Pod's by now
		}
		existence := existed(p.Metadata.CreationTimestamp, p.Metadata.UID)
		for _, ip := range p.Status.PodIPs {
			d.add(existence, ip.IP, p.Metadata.Namespace+"/"+p.Metadata.Name)
		}
	})
}

func (o *object) ended() bool {
	return o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed
}

func (d *Directory) services(ctx context.Context, existed Existed) error {
	return d.list(ctx, "services", func(s *object) {
		existence := existed(s.Metadata.CreationTimestamp, s.Metadata.UID)
		for _, ip := range s.Spec.ClusterIPs { // "None" is no address
			d.add(existence, ip, s.Metadata.Name+"."+s.Metadata.Namespace+".svc")
		}
	})
}

// list calls each with the objects of all namespaces, or of d.namespace if the user may list nothing else.
func (d *Directory) list(ctx context.Context, resource string, each func(*object)) error {
	namespace, token := "", ""
	if d.local {
		namespace = d.namespace
	}
	for range maxPages {
		l, err := d.source.List(ctx, resource, namespace, token)
		if apierrors.IsForbidden(err) && !d.local {
			d.local = true
			return d.list(ctx, resource, each)
		}
		if err != nil {
			return err
		}
		token, err = decode(l, each)
		_ = l.Close()
		switch {
		case err != nil:
			return fmt.Errorf("read a list of %s: %w", resource, err)
		case token == "":
			return nil
		}
	}
	d.cut = true
	return nil
}

// add adds a name. An address that has had another one gets none, because a packet does not say when it was whose.
func (d *Directory) add(e Existence, address, name string) {
	a, err := netip.ParseAddr(address)
	if err != nil || e == Absent {
		return
	}
	switch known, ok := d.names[a]; {
	case ok && known != name:
		d.names[a] = ""
	case e == Present:
		d.names[a] = name
	}
}

// Names returns all names, in the order of addresses; nil if there are none.
func (d *Directory) Names() *pcapng.Names {
	d.mu.Lock()
	defer d.mu.Unlock()
	return block(d.names)
}

// News returns the names that have changed since its last call, in the order of addresses; nil if there are none. If an address has lost its
// name, because several objects have had it, its new name is the address itself.
func (d *Directory) News() *pcapng.Names {
	d.mu.Lock()
	defer d.mu.Unlock()
	news := map[netip.Addr]string{}
	for a, name := range d.names {
		if name == "" && d.sent[a] != "" {
			name = a.String()
		}
		if name != d.sent[a] {
			news[a], d.sent[a] = name, name
		}
	}
	return block(news)
}

func block(names map[netip.Addr]string) *pcapng.Names {
	n := &pcapng.Names{}
	for a, name := range names {
		if name != "" {
			n.Records = append(n.Records, pcapng.Name{Address: a, Name: name})
		}
	}
	if len(n.Records) == 0 {
		return nil
	}
	slices.SortFunc(n.Records, func(a, b pcapng.Name) int { return a.Address.Compare(b.Address) })
	return n
}

// Note returns what the names lack, and what to do about it; empty if they lack nothing.
func (d *Directory) Note() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case apierrors.IsForbidden(d.err):
		return fmt.Sprintf("addresses have no names, because you may not list Pods and Services in namespace %s; "+
			`ask an admin for a Role there with the rule {apiGroups: [""], resources: [pods, services], verbs: [list]}`, d.namespace)
	case d.err != nil:
		return "some addresses have no names: " + d.err.Error()
	case d.cut:
		return fmt.Sprintf("some addresses have no names, because the cluster has more than %d Pods or Services", page*maxPages)
	}
	return ""
}

// During returns an Existed for a capture that began at start and has ended at end; a zero end means that it runs. Present are the Pods that
// the capture names by their UIDs, and objects from before its start. If live, those that were created meanwhile are, too: the Directory is
// refreshed again and again, and so notices an address that changes hands.
func During(start, end *metav1.Time, uids []string, live bool) Existed {
	return func(created time.Time, uid string) Existence {
		switch {
		case !end.IsZero() && created.After(end.Time):
			return Absent
		case live, slices.Contains(uids, uid), start.IsZero(), !created.After(start.Time):
			return Present
		}
		return Partly
	}
}
