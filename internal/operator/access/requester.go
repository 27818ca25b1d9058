// Package access asks the API server whether a user may capture. The user needs the verb capture or trace on pods of the
// target's namespace, and on nodes if the target shares the node's namespaces. To define a FluentPVC, they need the verb inject
// on the pods of all namespaces. Rights on Sonde's own kinds do not matter.
package access

import (
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// Requester is the user of a request, with everything that an authorizer may decide by. Extra matters: OpenShift keeps the
// scopes of a scoped token there, and a review without them would allow too much.
type Requester struct {
	Username string              `json:"username"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// FromUserInfo copies the requester from an admission request.
func FromUserInfo(u authenticationv1.UserInfo) Requester {
	r := Requester{Username: u.Username, UID: u.UID, Groups: slices.Clone(u.Groups)}
	if len(u.Extra) > 0 {
		r.Extra = make(map[string][]string, len(u.Extra))
		for k, v := range u.Extra {
			r.Extra[k] = slices.Clone(v)
		}
	}
	return r
}

// spec returns a review for r, without the resource attributes.
func (r Requester) spec() authorizationv1.SubjectAccessReviewSpec {
	s := authorizationv1.SubjectAccessReviewSpec{User: r.Username, UID: r.UID, Groups: r.Groups}
	if len(r.Extra) > 0 {
		s.Extra = make(map[string]authorizationv1.ExtraValue, len(r.Extra))
		for k, v := range r.Extra {
			s.Extra[k] = v
		}
	}
	return s
}

// key identifies a requester in a cache. Two requesters whom an authorizer could treat differently have different keys.
func (r Requester) key() string {
	b := []byte{}
	add := func(list ...string) {
		for _, s := range list {
			b = appendString(b, s)
		}
		b = append(b, 0xff) // ends a list: a length never begins with it
	}
	add(r.Username, r.UID)
	add(r.Groups...)
	for _, k := range slices.Sorted(maps.Keys(r.Extra)) {
		add(append([]string{k}, r.Extra[k]...)...)
	}
	return string(b)
}
