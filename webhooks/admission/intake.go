package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/connlimit"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Bounds of one review, in bytes of JSON. A review has the object, the object before an update, and the requester.
const (
	// MaxCreateBytes is enough for the largest spec that the schema allows with all 256 KiB of annotations that the API
	// server allows, even if JSON escapes many of their characters.
	MaxCreateBytes = 1 << 20
	// MaxUpdateBytes is enough for two objects as large as etcd stores: whatever its status has, a capture can be stopped.
	MaxUpdateBytes = 2*storedBytes + 256<<10
	// MaxPodBytes is enough for each Pod that etcd stores.
	MaxPodBytes = storedBytes + 256<<10

	storedBytes = 3 << 19
)

// Bounds of the reviews in flight, in bytes of JSON. Decoding one takes 7 to 23 times as much memory (docs/security.md), so
// the lanes of all webhooks together stay below the manager's limit. Small reviews, as people and their tools write them,
// have a lane of their own: large ones never keep them out.
const (
	smallBytes = 64 << 10
	// leastBytes is what the smallest review counts: its lookups take memory, too. So 64 are answered at once, at most 16 of
	// each namespace and user.
	leastBytes     = 16 << 10
	smallLaneBytes = 1 << 20
	// quickLaneBytes is for small reviews that wait for no compiler of filters, such as stops and ResultAccesses.
	quickLaneBytes = 512 << 10
	// largeLaneBytes is for large Pods. creationLaneBytes is for large creations of Sonde's own kinds: among them, PacketCaptures wait for the
	// compiler.
	largeLaneBytes    = 2 << 20
	creationLaneBytes = 5 << 18
	// updateLaneBytes is for large updates, such as stops of captures with a large status. They wait for no compiler of filters. One of any size
	// fits while the lane is empty.
	updateLaneBytes = 1 << 20
	// tenantBytes is the share of a namespace, and of a user, who may have many namespaces.
	tenantBytes = 256 << 10
)

// maxHeadBytes bounds what is read of a review before it has a place: the requester with all groups.
const maxHeadBytes = 64 << 10

// Bounds of the names in a review, in bytes. The API server calls webhooks before it validates an object's name, and audit
// records have all of them. User names have no bound in Kubernetes; the longest of a ServiceAccount has 341 bytes.
const (
	maxNameBytes      = 253
	maxNamespaceBytes = 63
	maxUserBytes      = 1 << 10
)

// maxDiscarded bounds how much of a refused review is received: more than an API server sends.
const maxDiscarded = 16 << 20

// retrySeconds is when kubectl and other clients of client-go try again by themselves.
const retrySeconds = 1

// Intake bounds the reviews that the manager reads at once. Otherwise a user who may create a capture, and needs no verb
// for it, takes the manager to its memory limit with some large objects in parallel. A review over a bound is refused
// without keeping it. None waits, because clients try again by themselves.
type Intake struct {
	create, update int64
	// quick and updates are nil if no review waits for a compiler.
	small, quick, large, updates *lane
	// remedy says how to make an object smaller.
	remedy string
}

// NewIntake returns the bounds for the webhooks of Sonde's own kinds.
func NewIntake() *Intake {
	return &Intake{
		create: MaxCreateBytes, update: MaxUpdateBytes, remedy: "shorten its fields, labels and annotations",
		small: newLane(smallLaneBytes, tenantBytes), quick: newLane(quickLaneBytes, tenantBytes),
		large: newLane(creationLaneBytes, tenantBytes), updates: newLane(updateLaneBytes, tenantBytes),
	}
}

// NewPodIntake returns bounds for the webhooks of Pods. Its users have no shares: a few controllers create the Pods of all
// namespaces.
func NewPodIntake() *Intake {
	return &Intake{
		create: MaxPodBytes, update: MaxPodBytes, remedy: "make the Pod smaller",
		small: newLane(smallLaneBytes, smallLaneBytes), large: newLane(largeLaneBytes, largeLaneBytes),
	}
}

// Unread answers a request that was not read because of err, a Refusal. Only its object is missing.
type Unread func(ctx context.Context, req webhook.AdmissionRequest, err error) webhook.AdmissionResponse

// Hook returns the handler that gives the reviews within the bounds to hook, which is a *webhook.Admission. unread answers
// the others; if it is nil, they are refused.
func (i *Intake) Hook(hook http.Handler, unread Unread) http.Handler {
	return i.hook(hook, unread, namespaced)
}

// HookCluster is Hook for a cluster-scoped kind. Its reviews have no namespace, so they share the place of one.
func (i *Intake) HookCluster(hook http.Handler, unread Unread) http.Handler {
	return i.hook(hook, unread, clusterScoped)
}

func (i *Intake) hook(hook http.Handler, unread Unread, scope scope) http.Handler {
	if unread == nil {
		unread = refuseUnread
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer connlimit.Serving(r.Context())()
		req, head, whole := readHead(r.Body)
		if req.UID == "" || r.ContentLength < 0 {
			http.Error(w, "this is no admission review of an API server, which begins with a UID and has a known length", http.StatusBadRequest)
			return
		}
		leave, err := func() {}, checkHead(req, whole, scope)
		if err == nil {
			leave, err = i.enter(r.ContentLength, req, scope)
		}
		if err == nil {
			defer leave()
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(head), r.Body)) // net/http closes the original
			hook.ServeHTTP(w, r)
			return
		}
		// An HTTP/1.1 client that still sends when the connection is closed loses the answer.
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxDiscarded))
		resp := unread(ctrl.LoggerInto(r.Context(), ctrl.Log.WithName("admission")), webhook.AdmissionRequest{AdmissionRequest: *req}, err)
		resp.UID = req.UID
		review := admissionv1.AdmissionReview{Response: &resp.AdmissionResponse}
		review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // fails if the API server has closed the connection
	})
}

// scope of a kind.
type scope bool

const (
	namespaced    scope = false
	clusterScoped scope = true
)

// clusterTenant is charged for the reviews of cluster-scoped kinds. No namespace has this name.
const clusterTenant = "(cluster)"

// tenant returns the namespace that is charged for a review, or "" if the review of a namespaced kind has none.
func (s scope) tenant(req *admissionv1.AdmissionRequest) string {
	if s == clusterScoped {
		return clusterTenant
	}
	return req.Namespace
}

// checkHead refuses a review without a tenant and user to charge, or with names that are too long for a record. It cuts
// these.
func checkHead(req *admissionv1.AdmissionRequest, whole bool, scope scope) error {
	var err error
	for _, n := range []struct {
		what string
		text *string
		most int
	}{{"user", &req.UserInfo.Username, maxUserBytes}, {"namespace", &req.Namespace, maxNamespaceBytes}, {"object", &req.Name, maxNameBytes}} {
		if size := len(*n.text); size > n.most {
			err = Invalid("the name of the %s has %d bytes, and the operator accepts at most %d: use a shorter one", n.what, size, n.most)
			*n.text = text.Ellipsis(*n.text, n.most)
		}
	}
	if err == nil && (!whole || scope.tenant(req) == "" || req.UserInfo.Username == "") {
		err = Invalid("the object's name, its namespace and what is known of the user have more than %d KiB, or some are missing: "+
			"use a shorter name, or another user", maxHeadBytes>>10)
	}
	return err
}

// enter gives a review its place until leave is called. The error is a Refusal.
func (i *Intake) enter(size int64, req *admissionv1.AdmissionRequest, scope scope) (leave func(), err error) {
	most, l := i.create, i.small
	if req.Operation == admissionv1.Update {
		most = i.update
	}
	if size > most {
		return nil, &Refusal{metav1.StatusReasonRequestEntityTooLarge, http.StatusRequestEntityTooLarge, fmt.Sprintf(
			"the %s and its metadata have %d KiB as JSON, and the operator reads at most %d KiB: %s", req.Kind.Kind, size>>10, most>>10, i.remedy)}
	}
	switch {
	case size > smallBytes && i.updates != nil && req.Operation == admissionv1.Update:
		l = i.updates
	case size > smallBytes:
		l = i.large
	case i.quick != nil && (req.Operation != admissionv1.Create || req.Kind.Kind != kind.PacketCapture.Name):
		l = i.quick
	}
	tenant := scope.tenant(req)
	leave, ok := l.enter(max(size, leastBytes), tenant, req.UserInfo.Username)
	if !ok {
		whose := "namespace " + tenant
		if scope == clusterScoped {
			whose = "this kind"
		}
		return nil, TooMany("the operator answers as many requests at once as it has memory for, of %s, of this user or of all: try again", whose)
	}
	return leave, nil
}

// refuseUnread is for webhooks that fail closed.
func refuseUnread(ctx context.Context, req webhook.AdmissionRequest, err error) webhook.AdmissionResponse {
	resp := respond(ctx, req, Granted{}, err)
	if resp.Result.Code == http.StatusTooManyRequests {
		resp.Result.Details = &metav1.StatusDetails{RetryAfterSeconds: retrySeconds}
	}
	return resp
}

// readHead reads a review up to its first object, before which the API server writes everything else. A review that is
// wrong is found so later. head is what it has taken from r, and whole is false if it found no object.
func readHead(r io.Reader) (req *admissionv1.AdmissionRequest, head []byte, whole bool) {
	var read bytes.Buffer
	d := json.NewDecoder(io.TeeReader(io.LimitReader(r, maxHeadBytes), &read))
	req = &admissionv1.AdmissionRequest{}
	fields := map[json.Token]any{
		"uid": &req.UID, "kind": &req.Kind, "name": &req.Name, "namespace": &req.Namespace, "operation": &req.Operation, "userInfo": &req.UserInfo,
	}
	_, err := d.Token() // the brace of the review
	for inside := false; err == nil && d.More(); {
		var key json.Token
		if key, err = d.Token(); err != nil {
			break
		}
		field, known := fields[key]
		switch {
		case !inside && key == "request":
			inside = true
			_, err = d.Token()
		case inside && (key == "object" || key == "oldObject"):
			return req, read.Bytes(), true
		case inside && known:
			err = d.Decode(field)
		default:
			err = d.Decode(&json.RawMessage{})
		}
	}
	return req, read.Bytes(), false
}
