package stowaway

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Bounds of a State.
const maxStateBytes = 8 << 20

// index is a State that is ready for questions. It is never changed.
type index struct {
	generation string
	routes     map[string]*route // by ID
	// clients has the route of each client's key. If two routes have the same key, the older one has it: a key is public once it is
	// in the cluster, so only its first owner can be the right one.
	clients map[tunnel.PublicKey]*route
	// byPod has the routes of a Pod, the oldest first.
	byPod    map[string][]*route
	carriers map[tunnel.PublicKey]tunnel.Carrier
	pods     map[string]tunnel.Carrier // by UID
}

// route is a Route whose Pods are a set. Its Match is only part of entry.
type route struct {
	tunnel.Route
	pods map[string]bool
	// entry is the route in a Table as JSON, up to the value of live. All carriers share it: there may be thousands, and a match has up
	// to 4 KiB. sum is its hash.
	entry []byte
	sum   [sha256.Size]byte
}

// newRoute returns an error if the route is not fit for a path or a Table.
func newRoute(r *tunnel.Route) (*route, error) {
	if !name.MatchString(r.ID) || r.ClientKey == "" || r.Port == 0 {
		return nil, errors.New("it needs an ID, a client key and a port")
	}
	entry, err := json.Marshal(tunnel.TableRoute{
		ID: r.ID, Created: r.Created.UTC(), Port: r.Port, Match: r.Match, ProbesToClient: r.ProbesToClient, GracePeriod: r.GracePeriod,
	})
	if err != nil {
		return nil, err
	}
	entry = bytes.TrimSuffix(entry, []byte("false}"))
	added := &route{Route: *r, pods: map[string]bool{}, entry: entry, sum: sha256.Sum256(entry)}
	added.Match = nil
	return added, nil
}

// name is what may be part of a path.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,127}$`)

// newIndex checks a State. Its errors are for the manager's log.
func newIndex(s *tunnel.State, manager tunnel.PublicKey) (*index, error) {
	if s.Version != tunnel.Version {
		return nil, fmt.Errorf("version %d of the protocol: this Stowaway speaks version %d", s.Version, tunnel.Version)
	}
	if s.Generation == "" {
		return nil, errors.New("a State needs a generation")
	}
	if len(s.Routes) > tunnel.MaxRoutes || len(s.Carriers) > tunnel.MaxCarriers {
		return nil, fmt.Errorf("%d routes and %d carriers: the limits are %d and %d", len(s.Routes), len(s.Carriers), tunnel.MaxRoutes, tunnel.MaxCarriers)
	}
	i := &index{
		generation: s.Generation, routes: map[string]*route{}, clients: map[tunnel.PublicKey]*route{}, byPod: map[string][]*route{},
		carriers: map[tunnel.PublicKey]tunnel.Carrier{}, pods: map[string]tunnel.Carrier{},
	}
	for _, c := range s.Carriers {
		_, sameKey := i.carriers[c.Key]
		_, samePod := i.pods[c.Pod]
		if !name.MatchString(c.Pod) || c.Key == "" || sameKey || samePod || c.Key == manager {
			return nil, fmt.Errorf("carrier %q of Pod %q: its Pod and its key must be its own", c.Name, c.Pod)
		}
		i.carriers[c.Key], i.pods[c.Pod] = c, c
	}
	return i, i.addRoutes(s.Routes)
}

func (i *index) addRoutes(routes []tunnel.Route) error {
	routes = slices.Clone(routes)
	slices.SortFunc(routes, func(a, b tunnel.Route) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	for _, r := range routes {
		if i.routes[r.ID] != nil {
			return fmt.Errorf("route %q with ID %q: another route has this ID", r.Name, r.ID)
		}
		added, err := newRoute(&r)
		if err != nil {
			return fmt.Errorf("route %q with ID %q: %w", r.Name, r.ID, err)
		}
		i.routes[r.ID] = added
		if i.clients[r.ClientKey] == nil {
			i.clients[r.ClientKey] = added
		}
		for _, pod := range r.Pods {
			if !added.pods[pod] {
				added.pods[pod] = true
				i.byPod[pod] = append(i.byPod[pod], added)
			}
		}
	}
	return nil
}

// changedPods returns the Pods whose routes differ from those of the index before. It does not compare which clients are connected.
func (i *index) changedPods(before *index) []string {
	same := map[string]bool{}
	for id, r := range i.routes {
		was := before.routes[id]
		same[id] = was != nil && r.sum == was.sum
	}
	var changed []string
	for pod, routes := range i.byPod {
		if !slices.EqualFunc(routes, before.byPod[pod], func(is, was *route) bool { return is.ID == was.ID && same[is.ID] }) {
			changed = append(changed, pod)
		}
	}
	for pod := range before.byPod {
		if len(i.byPod[pod]) == 0 {
			changed = append(changed, pod)
		}
	}
	return changed
}

// ofPod returns which of a Pod's ports and counters are of its routes, each port once, in memory of its own. A steered port is not unserved.
func (i *index) ofPod(pod string, steered, unserved []uint16, counters map[string]tunnel.Counters) (on, off []uint16, of map[string]tunnel.Counters) {
	of = map[string]tunnel.Counters{}
	for _, r := range i.byPod[pod] {
		switch {
		case slices.Contains(on, r.Port) || slices.Contains(off, r.Port): // of another route
		case slices.Contains(steered, r.Port):
			on = append(on, r.Port)
		case slices.Contains(unserved, r.Port):
			off = append(off, r.Port)
		}
		if n, ok := counters[r.ID]; ok {
			of[r.ID] = n
		}
	}
	slices.Sort(on)
	slices.Sort(off)
	return on, off, of
}

// owns reports whether the route of this ID is the one that the client's key connects to.
func (i *index) owns(id string, key tunnel.PublicKey) bool {
	r := i.clients[key]
	return r != nil && r.ID == id
}
