// Package results is the manager's endpoint for results: live counts and files of captures. It fetches them from the keepers
// for users with the token of a ResultAccess. Users reach it through the API server's services/proxy, which authenticates
// them and strips the Authorization header, so the token has a header of its own (docs/adr/0001-results-path.md).
package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/audit"
	"github.com/sonde-operator/sonde/internal/operator/eventlimit"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/connlimit"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// TokenHeader carries the token of a ResultAccess, and AccessHeader its UID. With the UID no copy of the hash is mistaken
// for it. Older clients send no UID.
const (
	TokenHeader  = "X-Sonde-Token"
	AccessHeader = "X-Sonde-Access"
)

// Paths of the endpoint, as patterns of http.ServeMux: before and after the resource of a kind.
const (
	patternBefore   = "GET /v1/namespaces/{namespace}/"
	patternProgress = "/{name}/progress"
	patternFile     = "/{name}/files/{pod}/{file}"
	patternLive     = "/{name}/live/{pod}/{file}"
)

// Intervals of running streams.
const (
	pollInterval      = 500 * time.Millisecond // for Pods that join or end; reads the cache only
	heartbeatInterval = 5 * time.Second        // a blank line, so that silence means a broken connection
	recheckInterval   = 15 * time.Second       // reviews the reader's right again
	retryInterval     = 2 * time.Second        // after a keeper did not answer
	untakenTime       = stallTimeout           // for the client to take the end of an answer
)

// Keeper is a client of a capture's keepers, as *keeperapi.Client is.
type Keeper interface {
	Watch(ctx context.Context, addr string, fn func(account.Account) error) error
	File(ctx context.Context, addr, name, rangeHeader string) (*http.Response, error)
	Live(ctx context.Context, addr, name string, q keeperapi.LiveQuery) (*http.Response, error)
	Close()
}

// Config of the endpoint.
type Config struct {
	// Cache reads captures, ResultAccesses and the agents' Pods.
	Cache client.Reader
	// Live reads Secrets of captures, target namespaces, and captures that have ended from the API server.
	Live client.Reader
	// Reviews are made on each request, so they should come from an access.Cached.
	Reviews access.Reviews
	// Key of the stamps.
	Key []byte
	// Namespace of the operator.
	Namespace string
	// Recorder of events on captures.
	Recorder events.EventRecorder
	Clock    clock.WithTicker
	// Drain counts downloads, so that a manager that ends does not break them off.
	Drain *Drain
}

// Handler serves the endpoint. It is safe for concurrent use.
type Handler struct {
	Config
	mux                *http.ServeMux
	downloads, streams *places
	watches            *places // of the keepers that streams watch
	events             *eventlimit.Limit
	refusals           *refusals
	listing            sync.Mutex // held while agents are copied from the cache

	// Transport and intervals, which New sets.
	connect                         func(secret map[string][]byte) (Keeper, error)
	address                         func(*corev1.Pod) string
	poll, heartbeat, recheck, retry time.Duration
	untaken                         time.Duration
}

// New returns a handler for c.
func New(c Config) *Handler {
	h := &Handler{
		Config: c, mux: http.NewServeMux(),
		downloads: newPlaces("downloads", maxDownloads, downloadsPerNamespace, downloadsPerUser, downloadSlice, c.Clock),
		streams:   newPlaces("streams", maxStreams, streamsPerNamespace, streamsPerUser, streamSlice, c.Clock),
		watches:   newPlaces("watches of Pods", maxWatches, watchesPerNamespace, watchesPerUser, streamSlice, c.Clock),
		events:    eventlimit.New(c.Clock),
		refusals:  newRefusals(c.Clock),
		connect:   connect, address: address,
		poll: pollInterval, heartbeat: heartbeatInterval, recheck: recheckInterval, retry: retryInterval,
		untaken: untakenTime,
	}
	for _, k := range kind.Captures {
		h.mux.HandleFunc(patternBefore+k.Resource+patternProgress, h.handle(k, h.streams, h.progress))
		h.mux.HandleFunc(patternBefore+k.Resource+patternFile, h.handle(k, h.downloads, h.file))
		h.mux.HandleFunc(patternBefore+k.Resource+patternLive, h.handle(k, h.streams, h.live))
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	// The deadline of the connection's last answer may be over. Only a test's writer has none.
	_ = http.NewResponseController(w).SetWriteDeadline(h.Clock.Now().Add(stallTimeout))
	if _, pattern := h.mux.Handler(r); pattern == "" {
		reply(w, failf(http.StatusNotFound, "no such path: GET /v1/namespaces/NAMESPACE/packetcaptures/NAME/progress (or traces/NAME/progress), .../files/UID/FILE, or .../live/UID/FILE; \"kubectl sonde download NAME\" does both"))
		return
	}
	h.mux.ServeHTTP(w, r)
}

// failure is an answer without a result. The message is for the user.
type failure struct {
	code    int
	message string
	header  http.Header
}

func (f *failure) Error() string { return f.message }

func failf(code int, format string, args ...any) error {
	return &failure{code: code, message: fmt.Sprintf(format, args...)}
}

// errBroken ends an answer that has begun. It closes the connection, so that clients notice an incomplete file.
var errBroken = errors.New("the response broke off")

// serveFunc serves an authorized request.
type serveFunc func(http.ResponseWriter, *http.Request, session) error

// handle finds the requester, takes a place and turns errors into answers.
func (h *Handler) handle(k kind.Capture, p *places, serve serveFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		log := ctrl.LoggerFrom(r.Context()).WithName("results").WithValues(k.Name, quoted(r.PathValue("namespace"))+"/"+quoted(r.PathValue("name")))
		s, err := h.identify(r.Context(), r.Header, k, r.PathValue("namespace"), r.PathValue("name"))
		known := err == nil
		if known {
			log = log.WithValues(audit.Requester, s.who.Username)
			err = h.inPlace(p, w, r.WithContext(ctrl.LoggerInto(r.Context(), log)), s, serve)
		}
		var f *failure
		switch {
		case err == nil:
		case errors.Is(err, errBroken):
			panic(http.ErrAbortHandler)
		case errors.As(err, &f):
			h.refusals.record(log, f, known)
			reply(w, err)
		case r.Context().Err() != nil: // the client has gone
		default:
			log.Error(err, "Serving result", audit.Key, audit.ResultRefused)
			reply(w, failf(http.StatusBadGateway, "%v: try again, and see the manager's log if this continues", err))
		}
	}
}

// inPlace serves a request while it has a place. Only here the API server is asked: a user who may have no place costs it
// nothing.
func (h *Handler) inPlace(p *places, w http.ResponseWriter, r *http.Request, s session, serve serveFunc) error {
	ctx, own, err := p.take(r.Context(), s.capture.Common().TargetNamespace, s.who.Username)
	if err != nil {
		return err
	}
	defer p.leave(own)
	if p == h.downloads {
		defer h.Drain.Enter()()
	}
	defer connlimit.Serving(ctx)()
	if err = h.admit(ctx, s); err == nil {
		err = p.settle(own)
	}
	if err == nil {
		sent := connlimit.Sending(ctx)
		err = h.inTime(ctx, p, w, r, s, serve)
		h.awaitTaken(ctx, w, err)
		sent()
	}
	if err != nil && !errors.Is(err, errBroken) && errors.Is(context.Cause(ctx), errYield) { // before its answer began
		return full(http.StatusServiceUnavailable, "the place of this request was given to a namespace that has fewer %s open: try again", p.name)
	}
	return err
}

// awaitTaken waits until the client has read the answer. The request keeps its place meanwhile, so that the places also bound the memory of
// unread answers.
func (h *Handler) awaitTaken(ctx context.Context, w http.ResponseWriter, err error) {
	switch {
	case err == nil:
		rc := http.NewResponseController(w)
		defer context.AfterFunc(ctx, func() { _ = rc.SetWriteDeadline(time.Unix(1, 0)) })()
		if h.extendDeadline(ctx, rc) == nil {
			_ = rc.Flush() // fails only if the client has gone
		}
		defer func() { _ = h.extendDeadline(ctx, rc) }() // net/http writes the end of an answer without a length later
	case !errors.Is(err, errBroken): // a small answer follows
		return
	}
	connlimit.AwaitTaken(ctx, h.untaken)
}

// inTime serves a request that has a place and the right to it, a stream for a limited time.
func (h *Handler) inTime(ctx context.Context, p *places, w http.ResponseWriter, r *http.Request, s session, serve serveFunc) error {
	var end <-chan time.Time
	if p == h.streams {
		timer := h.Clock.NewTimer(streamLifetime)
		defer timer.Stop()
		end = timer.C()
	}
	return h.whileAllowed(ctx, end, w, r, s, serve)
}

// whileAllowed serves with a context that ends when the requester loses the right, the capture is deleted, or the time of a
// stream is over.
func (h *Handler) whileAllowed(ctx context.Context, end <-chan time.Time, w http.ResponseWriter, r *http.Request, s session, serve serveFunc) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ticker := h.Clock.NewTicker(h.recheck)
	defer ticker.Stop()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-end:
				cancel(errLifetime)
				return
			case <-ticker.C():
			}
			_, err := h.authorize(ctx, r.Header, s.kind, s.capture.GetNamespace(), s.capture.GetName())
			if err == nil {
				err = h.reviewNodes(ctx, s)
			}
			if isFailure(err) { // other errors, such as no answer of the API server, end no stream
				cancel(err)
				return
			}
		}
	}()
	return serve(w, r.WithContext(ctx), s)
}

// reply writes {"error": "..."}.
func reply(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if f, ok := errors.AsType[*failure](err); ok {
		code = f.code
		maps.Copy(w.Header(), f.header)
	}
	b, merr := json.Marshal(map[string]string{"error": err.Error()})
	if merr != nil {
		b = []byte(`{"error":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(b, '\n')) // fails only if the client has gone
}

// Forms of UIDs and files in a path. Nothing else reaches a lookup or a keeper.
var (
	uidForm  = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9]{0,62}$`)
	fileForm = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._]{0,254}$`)
)

// isName reports whether an object could have this name.
func isName(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }

// quoted makes a part of a path fit for a log: one line, bounded.
func quoted(s string) string {
	if isName(s) {
		return s
	}
	return strconv.QuoteToASCII(s[:min(len(s), 64)])
}

// connect returns a client for the keepers of the capture that has this Secret.
func connect(secret map[string][]byte) (Keeper, error) {
	c, err := keeperapi.NewClient(secret[captureconfig.SecretServerCert], secret[captureconfig.SecretClientCert], secret[captureconfig.SecretClientKey])
	if err != nil {
		return nil, err // not c: a nil pointer in an interface is not nil
	}
	return c, nil
}

// address of the keeper in an agent's Pod.
func address(pod *corev1.Pod) string {
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(captureconfig.KeeperPort))
}
