package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/agents/stowaway"
	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// interceptCluster simulates the API server and the operator around a real Stowaway: one Pod with a carrier.
type interceptCluster struct {
	t   *testing.T
	url string

	mu       sync.Mutex
	objects  map[string]*v1alpha1.InterceptRequest
	changed  chan struct{}
	version  int
	created  []v1alpha1.InterceptRequestSpec
	refuse   error // answers requests to create
	proxyErr error // answers services/proxy
	noDelete bool
	// stuck: requests to delete get no answer.
	stuck bool
	// locked are names that cannot be deleted.
	locked map[string]bool
	// lost is a method of HTTP: requests are carried out, and get no answer.
	lost string
	// slow: requests to create are carried out, and their answer does not come.
	slow bool
	// lists counts requests for all InterceptRequests.
	lists int
	// getErr answers reads of one object. afterGet is called after one, with the lock.
	getErr   error
	noWatch  bool // ends watches
	afterGet func()
	// gone are deleted objects, for watches from a version before.
	gone map[string]*v1alpha1.InterceptRequest
	// mayNotDelete answers the question whether the user may delete.
	mayNotDelete bool
	// mutate changes the object before it exists, as a webhook does.
	mutate func(*v1alpha1.InterceptRequest)
	// onCreate changes the new object, as the operator does.
	onCreate func(*v1alpha1.InterceptRequest)

	identity, manager, carrier *tunnel.Identity
	peers                      string
	upgrades                   []net.Conn // of the proxy to Stowaway
}

func newInterceptCluster(t *testing.T) *interceptCluster {
	t.Helper()
	c := &interceptCluster{t: t, objects: map[string]*v1alpha1.InterceptRequest{}, changed: make(chan struct{})}
	c.onCreate = c.reconcile
	for _, i := range []**tunnel.Identity{&c.identity, &c.manager, &c.carrier} {
		made, err := tunnel.NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		*i = made
	}
	clients := c.startStowaway()
	const kinds = "/apis/monitoring.openshift.tpg/v1alpha1/"
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+kinds+"namespaces/shop/interceptrequests", c.create)
	mux.HandleFunc("GET "+kinds+"namespaces/shop/interceptrequests", c.list)
	mux.HandleFunc("GET "+kinds+"interceptrequests", c.list)
	mux.HandleFunc("GET "+kinds+"namespaces/shop/interceptrequests/{name}", c.get)
	mux.HandleFunc("DELETE "+kinds+"namespaces/shop/interceptrequests/{name}", c.remove)
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/selfsubjectreviews", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusCreated, authenticationv1.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview", APIVersion: "authentication.k8s.io/v1"},
			Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "alice"}},
		})
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", c.review)
	mux.HandleFunc("GET /apis/apps/v1/namespaces/shop/{kind}/{name}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("kind") != "deployments" || r.PathValue("name") != "web" {
			answerError(w, apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: r.PathValue("kind")}, r.PathValue("name"), errors.New("no")))
			return
		}
		answerJSON(w, http.StatusOK, web)
	})
	mux.HandleFunc("GET /api/v1/namespaces/shop/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		answerError(w, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, r.PathValue("name")))
	})
	const proxied = "/api/v1/namespaces/sonde-system/services/http:sonde-stowaway:client/proxy"
	mux.HandleFunc(proxied+"/", func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		err := c.proxyErr
		c.mu.Unlock()
		if err != nil {
			answerError(w, err)
			return
		}
		h := httputil.ReverseProxy{
			Transport: &http.Transport{DialContext: c.dial, DisableKeepAlives: true}, ErrorLog: log.New(io.Discard, "", 0),
			Rewrite: func(p *httputil.ProxyRequest) {
				p.Out.URL = &url.URL{Scheme: "http", Host: clients, Path: strings.TrimPrefix(p.In.URL.Path, proxied)}
			},
		}
		h.ServeHTTP(w, r)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.CloseClientConnections)
	c.url = server.URL
	return c
}

// web is the workload whose ports have names.
var web = appsv1.Deployment{
	TypeMeta: metav1.TypeMeta{Kind: "Deployment", APIVersion: "apps/v1"},
	Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Containers: []corev1.Container{
			{Name: "app", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {Name: "admin", ContainerPort: 9000}}},
			{Name: "log", Ports: []corev1.ContainerPort{{Name: "admin", ContainerPort: 9001}, {ContainerPort: 7}}},
		},
		InitContainers: []corev1.Container{{Name: "mesh", Ports: []corev1.ContainerPort{{Name: "proxy", ContainerPort: 15001}}}},
	}}},
}

func (c *interceptCluster) review(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var review authorizationv1.SelfSubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		c.t.Error(err)
	}
	if a := review.Spec.ResourceAttributes; a.Verb != "delete" || a.Resource != "interceptrequests" || a.Namespace != "shop" {
		c.t.Errorf("asks whether the user may %+v", a)
	}
	review.Status.Allowed = !c.mayNotDelete
	answerJSON(w, http.StatusCreated, review)
}

func (c *interceptCluster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.upgrades = append(c.upgrades, conn)
	return conn, err
}

// cutTunnels closes the API server's connections to Stowaway.
func (c *interceptCluster) cutTunnels() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.upgrades)
	for _, conn := range c.upgrades {
		_ = conn.Close()
	}
	c.upgrades = nil
	return n
}

func answerJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func answerError(w http.ResponseWriter, err error) {
	status := metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Code: 500}
	if e, ok := err.(apierrors.APIStatus); ok {
		status = e.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	answerJSON(w, int(status.Code), status)
}

func (c *interceptCluster) startStowaway() (clients string) {
	t := c.t
	var listeners [2]net.Listener
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
	}
	c.peers = listeners[1].Addr().String()
	listen := func(i int) func(context.Context) (net.Listener, error) {
		return func(context.Context) (net.Listener, error) { return listeners[i], nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() {
		ran <- stowaway.Run(ctx, &stowaway.Config{
			Identity: c.identity, ManagerKey: c.manager.Key, ListenClients: listen(0), ListenPeers: listen(1),
			Confined: func() error { return nil }, Restrict: func() (restriction.InForce, error) { return restriction.InForce{}, nil },
			Log: slog.New(slog.DiscardHandler),
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	return listeners[0].Addr().String()
}

// peer connects to Stowaway as the manager or as the carrier.
func (c *interceptCluster) peer(i *tunnel.Identity) *tunnel.Peer {
	c.t.Helper()
	conn, err := net.Dial("tcp", c.peers)
	if err != nil {
		c.t.Fatal(err)
	}
	secure := tls.Client(conn, i.ClientTLS(c.identity.Key))
	if err := tunnel.Handshake(context.Background(), secure); err != nil {
		c.t.Fatal(err)
	}
	p, err := tunnel.NewPeer(secure, tunnel.Far)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(p.Close)
	return p
}

// reconcile makes an object active, and its route known to Stowaway. The caller holds the lock.
func (c *interceptCluster) reconcile(o *v1alpha1.InterceptRequest) {
	b, err := json.Marshal(tunnel.State{
		Version: tunnel.Version, Generation: string(o.UID), Carriers: []tunnel.Carrier{{Pod: "p1", Name: "shop/web-1", Key: c.carrier.Key}},
		Routes: []tunnel.Route{{ID: string(o.UID), Name: "shop/" + o.Name, ClientKey: tunnel.PublicKey(o.Spec.ClientKey), Port: 8080, Pods: []string{"p1"}}},
	})
	if err != nil {
		c.t.Error(err)
	}
	manager := c.peer(c.manager)
	r, err := tunnel.NewRequest(context.Background(), http.MethodPut, tunnel.PathState, bytes.NewReader(b))
	if err != nil {
		c.t.Error(err)
	}
	response, err := manager.Do(r)
	if err != nil {
		c.t.Errorf("State: %v", err)
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		c.t.Errorf("State: %s", response.Status)
	}
	o.Status.StowawayKey, o.Status.StowawayNamespace, o.Status.Phase = string(c.identity.Key), "sonde-system", v1alpha1.InterceptActive
	o.Status.Pods = []v1alpha1.InterceptPod{{Name: "web-1", UID: "p1", Node: "n1", Active: true}}
}

func (c *interceptCluster) change(o *v1alpha1.InterceptRequest) {
	c.version++
	if o != nil {
		o.ResourceVersion = fmt.Sprint(c.version)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// later changes the only object, as the operator does.
func (c *interceptCluster) later(act func(*v1alpha1.InterceptRequest)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, o := range c.objects {
		changed := o.DeepCopy()
		act(changed)
		c.objects[name] = changed
		c.change(changed)
	}
}

func (c *interceptCluster) create(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := &v1alpha1.InterceptRequest{}
	if err := json.NewDecoder(r.Body).Decode(o); err != nil {
		c.t.Error(err)
	}
	c.created = append(c.created, o.Spec)
	if c.refuse != nil {
		answerError(w, c.refuse)
		return
	}
	c.version++
	if o.Name == "" {
		o.Name = o.GenerateName + "x7k2p"
	}
	o.UID = "uid-1"
	o.CreationTimestamp = metav1.Now()
	o.Annotations = map[string]string{v1alpha1.AnnotationRequester: `{"requester":{"username":"alice"}}`}
	if c.mutate != nil {
		c.mutate(o)
	}
	c.objects[o.Name] = o
	c.change(o)
	if c.lost == r.Method {
		panic(http.ErrAbortHandler)
	}
	if c.slow {
		c.mu.Unlock()
		<-r.Context().Done()
		c.mu.Lock()
		return
	}
	answerJSON(w, http.StatusCreated, o)
	o = o.DeepCopy()
	c.onCreate(o)
	c.objects[o.Name] = o
	c.change(o)
}

var interceptResource = schema.GroupResource{Group: "monitoring.openshift.tpg", Resource: "interceptrequests"}

func (c *interceptCluster) get(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.afterGet != nil {
		defer c.afterGet()
	}
	if c.getErr != nil {
		answerError(w, c.getErr)
		return
	}
	if o := c.objects[r.PathValue("name")]; o != nil {
		answerJSON(w, http.StatusOK, o)
		return
	}
	answerError(w, apierrors.NewNotFound(interceptResource, r.PathValue("name")))
}

func (c *interceptCluster) remove(w http.ResponseWriter, r *http.Request) {
	if c.stuck {
		<-r.Context().Done()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.noDelete || c.locked[r.PathValue("name")] {
		answerError(w, apierrors.NewForbidden(interceptResource, r.PathValue("name"), fmt.Errorf("not today")))
		return
	}
	delete(c.objects, r.PathValue("name"))
	c.change(nil)
	if c.lost == r.Method {
		panic(http.ErrAbortHandler)
	}
	answerJSON(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}

func (c *interceptCluster) list(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lists++
		items := []any{}
		for _, o := range c.objects {
			items = append(items, o)
		}
		answerJSON(w, http.StatusOK, map[string]any{"items": items})
		return
	}
	name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	if !ok {
		c.t.Errorf("watch of everything: %s", r.URL.RawQuery)
	}
	w.Header().Set("Content-Type", "application/json")
	var last *v1alpha1.InterceptRequest
	from := r.URL.Query().Get("resourceVersion")
	for {
		c.mu.Lock()
		o, changed := c.objects[name], c.changed
		if c.noWatch {
			c.mu.Unlock()
			return
		}
		if last == nil && from != "" {
			last = c.gone[name]
		}
		c.mu.Unlock()
		if o == nil && last == nil { // a watch from now on
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		if o == nil {
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "DELETED", "object": last})
			return
		}
		last = o
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": o})
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (c *interceptCluster) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.objects)
}

// awaitLeft waits until there are n InterceptRequests.
func (c *interceptCluster) awaitLeft(n int) {
	c.t.Helper()
	end := time.Now().Add(10 * time.Second)
	for c.left() != n {
		if time.Now().After(end) {
			c.t.Errorf("there are %d InterceptRequests, want %d", c.left(), n)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *interceptCluster) start(args ...string) *run {
	c.t.Helper()
	return startWith(c.t, &apiServer{url: c.url}, func(*Options) {}, args...)
}

// say sends text through a carrier's stream, again and again until the client is connected.
func (c *interceptCluster) say(carrier *tunnel.Peer, text string) string {
	c.t.Helper()
	var last error
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s, err := carrier.Open(c.t.Context(), tunnel.PathOpen+"uid-1", nil)
		if err != nil {
			last = err
			continue
		}
		_, _ = io.WriteString(s, text)
		_ = s.CloseWrite()
		b, err := io.ReadAll(s)
		_ = s.Close()
		if err == nil {
			return string(b)
		}
		last = err
	}
	c.t.Fatalf("no stream: %v", last)
	return ""
}

// echoServer is the developer's process.
func echoServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, io.MultiReader(strings.NewReader("laptop "), conn))
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func TestIntercept(t *testing.T) {
	c := newInterceptCluster(t)
	r := c.start("intercept", "deploy/web", "--port", "8080", "--to", echoServer(t), "--header", "x-user=alice", "--path-prefix", "/api", "--any")
	r.errOut.await(t, "web-1 on n1: Active")
	carrier := c.peer(c.carrier)
	if got := c.say(carrier, "hello"); got != "laptop hello" {
		t.Errorf("read %q", got)
	}
	line, err := json.Marshal(tunnel.Report{
		Routes:   map[string]tunnel.Counters{"uid-1": {Matched: 7, Passed: 2, BytesToClient: 1024}},
		Requests: []tunnel.Request{{Time: time.Now(), Number: 42, Route: "uid-1", Method: "GET", Path: "/api/x\x1b[2J", Status: 201, Client: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	request, err := tunnel.NewRequest(t.Context(), http.MethodPost, tunnel.PathReport, bytes.NewReader(append(line, '\n')))
	if err != nil {
		t.Fatal(err)
	}
	response, err := carrier.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	r.errOut.await(t, "41 more since the last lines, not shown")
	r.errOut.await(t, "web-1  GET /api/x [2J  201  by you")
	r.errOut.await(t, "web-1 on n1: Active, 7 requests, 1.0 KiB, 0 failed")

	if n := c.cutTunnels(); n == 0 {
		t.Error("no tunnel went through the proxy")
	}
	if got := c.say(carrier, "again"); got != "laptop again" {
		t.Errorf("read %q after the tunnel was cut", got)
	}
	r.signals <- os.Interrupt
	r.await(t, report.ExitOK)
	if c.left() != 0 {
		t.Error("the InterceptRequest is still there")
	}
	r.errOut.await(t, "Ended: the app answers")
	m := c.created[0].Match
	if m.Require != v1alpha1.MatchAny || m.Headers[0].Name != "x-user" || *m.Headers[0].Exact != "alice" || *m.Path.Prefix != "/api" {
		t.Errorf("match %+v", m)
	}
}

// TestInterceptUnread: callers do not fill this machine's memory with requests that its process does not read. The user is told.
func TestInterceptUnread(t *testing.T) {
	c := newInterceptCluster(t)
	const reads, streams = "read", 256<<20/int(tunnel.Far) + 3
	// The kernel holds less than 100 KiB of what is not read, and not some 4 MiB.
	small := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		cerr := raw.Control(func(fd uintptr) {
			err = errors.Join(syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536), syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10))
		})
		return errors.Join(cerr, err)
	}}
	l, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				first := make([]byte, len(reads))
				if _, err := io.ReadFull(conn, first); err == nil && string(first) == reads {
					_, _ = io.Copy(conn, io.MultiReader(strings.NewReader("laptop "), conn))
					return
				}
				<-done
			}()
		}
	}()
	r := c.start("intercept", "deploy/web", "--port", "8080", "--to", l.Addr().String())
	r.errOut.await(t, "web-1 on n1: Active")
	carrier := c.peer(c.carrier)
	if got := c.say(carrier, reads+"before"); got != "laptop before" {
		t.Errorf("read %q", got)
	}
	cut, ended := make(chan error, streams), []error{}
	for range streams {
		s, err := carrier.Open(t.Context(), tunnel.PathOpen+"uid-1", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		go func() { _, _ = s.Write(make([]byte, 512<<10)) }()
		go func() {
			_, err := io.Copy(io.Discard, s)
			cut <- err
		}()
	}
	for late := time.After(time.Minute); len(ended) < 3; {
		select {
		case err := <-cut:
			ended = append(ended, err)
		case <-late:
			t.Fatalf("%d requests are cut, want 3\n%s", len(ended), r.errOut)
		}
	}
	if slices.Contains(ended, nil) {
		t.Error("a request that was cut has a whole answer")
	}
	r.errOut.await(t, "because the process at "+l.Addr().String()+" did not read in time")
	if got := c.say(carrier, reads+"after"); got != "laptop after" {
		t.Errorf("read %q", got)
	}
	if n := len(cut); n > streams/2 {
		t.Errorf("%d further requests are cut", n)
	}
	r.signals <- os.Interrupt
	r.await(t, report.ExitOK)
}

func TestInterceptEnds(t *testing.T) {
	condition := func(phase v1alpha1.InterceptPhase, reason, message string) func(*v1alpha1.InterceptRequest) {
		return func(o *v1alpha1.InterceptRequest) {
			o.Status.Phase = phase
			o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionIntercepted, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
		}
	}
	pending := condition(v1alpha1.InterceptPending, v1alpha1.ReasonStowawayStarting, "the tunnel is starting")
	for name, tc := range map[string]struct {
		prepare  func(*interceptCluster)
		onCreate func(*v1alpha1.InterceptRequest)
		await    string
		act      func(*interceptCluster, *run)
		wantCode int
		want     []string
		wantLeft int
	}{
		"interrupted while it waits": {
			onCreate: pending, await: "Pending: StowawayStarting",
			act: func(_ *interceptCluster, r *run) { r.signals <- os.Interrupt }, want: []string{"the tunnel is starting", "Ended: the app answers"},
		},
		"expired": {
			await: "Active", act: func(c *interceptCluster, _ *run) { c.later(condition(v1alpha1.InterceptEnded, "Expired", "8h")) },
			want: []string{"the intercept has expired"},
		},
		"failed": {
			onCreate: condition(v1alpha1.InterceptFailed, "HostNetwork", "the Pods use their node's network"), wantCode: 1,
			want: []string{"error: the intercept has failed: HostNetwork: the Pods use their node's network"},
		},
		"deleted by another": {
			await: "Active",
			act: func(c *interceptCluster, _ *run) {
				c.mu.Lock()
				defer c.mu.Unlock()
				clear(c.objects)
				c.change(nil)
			},
			want: []string{"the InterceptRequest was deleted"},
		},
		"cannot be deleted": {
			prepare: func(c *interceptCluster) { c.noDelete = true }, await: "Active",
			act: func(_ *interceptCluster, r *run) { r.signals <- os.Interrupt }, wantCode: 1, wantLeft: 1,
			want: []string{"the InterceptRequest is still there", "not today", "a user with the role edit can delete it:\n  kubectl sonde down"},
		},
		"interrupted twice, and the API server does not answer": {
			prepare: func(c *interceptCluster) { c.stuck = true }, await: "Active",
			act: func(_ *interceptCluster, r *run) {
				r.signals <- os.Interrupt
				r.errOut.await(t, ": Ending")
				r.signals <- os.Interrupt
			},
			wantCode: report.ExitInterrupted, wantLeft: 1, want: []string{"To delete it:\n  kubectl sonde down"},
		},
		"cannot be deleted or read": {
			prepare: func(c *interceptCluster) { c.noDelete = true }, await: "Active",
			act: func(c *interceptCluster, r *run) {
				c.mu.Lock()
				c.getErr = apierrors.NewInternalError(fmt.Errorf("no etcd"))
				c.mu.Unlock()
				r.signals <- os.Interrupt
			},
			wantCode: 1, wantLeft: 1, want: []string{"the InterceptRequest may still be there", "not today"},
		},
		"deleted, but the answer is lost": {
			prepare: func(c *interceptCluster) { c.lost = http.MethodDelete }, await: "Active",
			act: func(_ *interceptCluster, r *run) { r.signals <- os.Interrupt }, want: []string{"Ended: the app answers"},
		},
		"failed, and cannot be deleted": {
			prepare: func(c *interceptCluster) { c.noDelete = true }, await: "Active",
			act: func(c *interceptCluster, _ *run) {
				c.later(func(o *v1alpha1.InterceptRequest) {
					o.Status.Phase = v1alpha1.InterceptFailed
					o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAdmitted, Status: metav1.ConditionFalse, Reason: "AccessRevoked", Message: "alice lacks the verb"}}
				})
			},
			wantCode: 1, wantLeft: 1, want: []string{"AccessRevoked: alice lacks the verb", "not today"},
		},
		"no right to the proxy": {
			prepare: func(c *interceptCluster) {
				c.proxyErr = apierrors.NewForbidden(schema.GroupResource{Resource: "services/proxy"}, "http:sonde-stowaway:client", fmt.Errorf("User cannot get"))
			},
			wantCode: 1, want: []string{"User cannot get", "RoleBinding sonde-results"},
		},
		"Stowaway is not ready": {
			prepare: func(c *interceptCluster) { c.proxyErr = apierrors.NewServiceUnavailable("no endpoints available") },
			await:   "no endpoints available: the cluster's end of the tunnel is not ready; connecting again",
			act:     func(_ *interceptCluster, r *run) { r.signals <- os.Interrupt },
		},
		"refused by the webhook": {
			prepare: func(c *interceptCluster) {
				c.refuse = apierrors.NewForbidden(interceptResource, "web", fmt.Errorf("bob intercepts that port"))
			},
			wantCode: 1, want: []string{"bob intercepts that port"},
		},
		"an intercept of that name": {
			prepare:  func(c *interceptCluster) { c.refuse = apierrors.NewAlreadyExists(interceptResource, "mine") },
			wantCode: 1, want: []string{"choose another --name", "kubectl sonde down"},
		},
		"no right to create": {
			prepare: func(c *interceptCluster) {
				c.refuse = apierrors.NewForbidden(interceptResource, "", fmt.Errorf(`User "eve" cannot create resource "interceptrequests" in API group "monitoring.openshift.tpg" in the namespace "shop"`))
			},
			wantCode: 1, want: []string{"Ask an admin for the ClusterRole sonde-intercept in namespace shop"},
		},
		"no such kind": {
			prepare: func(c *interceptCluster) {
				c.refuse = &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404, Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{Kind: "interceptrequests", Group: "monitoring.openshift.tpg"}}}
			},
			wantCode: 1, want: []string{"this cluster has no InterceptRequests"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInterceptCluster(t)
			if tc.onCreate != nil {
				c.onCreate = tc.onCreate
			}
			if tc.prepare != nil {
				tc.prepare(c)
			}
			r := c.start("intercept", "web", "--port", "8080", "--to", "127.0.0.1:1")
			if tc.await != "" {
				r.errOut.await(t, tc.await)
			}
			if tc.act != nil {
				tc.act(c, r)
			}
			r.await(t, tc.wantCode)
			for _, want := range tc.want {
				if !strings.Contains(r.errOut.String(), want) {
					t.Errorf("no %q in\n%s", want, r.errOut)
				}
			}
			if got := c.left(); got != tc.wantLeft {
				t.Errorf("%d InterceptRequests are left, want %d", got, tc.wantLeft)
			}
		})
	}
}

// TestInterceptCreatedWithoutAnAnswer: an InterceptRequest whose name the plugin never gets does not stay.
func TestInterceptCreatedWithoutAnAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare   func(*interceptCluster)
		interrupt bool
		wantCode  int
		want      []string
		wantLeft  int
		wantLists int
	}{
		"the connection is lost": {
			prepare: func(c *interceptCluster) { c.lost = http.MethodPost }, wantCode: report.ExitError, want: []string{"EOF"}, wantLists: 1,
		},
		"interrupted": {
			prepare: func(c *interceptCluster) { c.slow = true }, interrupt: true, wantCode: report.ExitInterrupted, wantLists: 1,
		},
		"and it cannot be deleted": {
			prepare: func(c *interceptCluster) { c.lost, c.noDelete = http.MethodPost, true }, wantCode: report.ExitError, wantLeft: 1, wantLists: 1,
			want: []string{"it may exist: Error from server (Forbidden): ", "not today", "To end it:\n  kubectl sonde down web-x7k2p -n shop\n", "error: Post "},
		},
		"interrupted, and it cannot be deleted": {
			prepare: func(c *interceptCluster) { c.slow, c.noDelete = true, true }, interrupt: true, wantCode: report.ExitInterrupted, wantLeft: 1, wantLists: 1,
			want: []string{"To end it:\n  kubectl sonde down web-x7k2p -n shop\n"},
		},
		"refused": {
			prepare:  func(c *interceptCluster) { c.refuse = apierrors.NewInvalid(schema.GroupKind{}, "web", nil) },
			wantCode: report.ExitError, want: []string{"is invalid"},
		},
		"the API server fails": {
			prepare:  func(c *interceptCluster) { c.refuse = apierrors.NewInternalError(errors.New("no etcd")) },
			wantCode: report.ExitError, want: []string{"no etcd"}, wantLists: 1,
		},
		"the API server gives up": { // and goes on with it, perhaps
			prepare:  func(c *interceptCluster) { c.refuse = apierrors.NewTimeoutError("too slow", 0) },
			wantCode: report.ExitError, want: []string{"too slow", "it may be created later\nTo find it:\n  kubectl sonde intercepts -n shop\nTo end it:\n  kubectl sonde down NAME -n shop\n"}, wantLists: 1,
		},
		"etcd gives up": {
			prepare: func(c *interceptCluster) {
				c.refuse = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: "etcdserver: request timed out"}}
			},
			wantCode: report.ExitError, want: []string{"request timed out", "it may be created later"}, wantLists: 1,
		},
		"a load balancer gives up": {
			prepare: func(c *interceptCluster) {
				c.refuse = apierrors.NewGenericServerResponse(502, "POST", schema.GroupResource{}, "", "bad gateway", 0, true)
			},
			wantCode: report.ExitError, want: []string{"bad gateway", "it may be created later"}, wantLists: 1,
		},
		"the API server cannot be reached": {
			prepare: func(c *interceptCluster) { c.url = "http://127.0.0.1:1" }, wantCode: report.ExitError, want: []string{"error: Post ", "cannot be reached"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInterceptCluster(t)
			tc.prepare(c)
			r := c.start("intercept", "web", "--port", "8080", "--to", "127.0.0.1:1")
			if tc.interrupt {
				c.awaitLeft(1)
				r.signals <- os.Interrupt
				r.signals <- os.Interrupt
			}
			r.await(t, tc.wantCode)
			text := r.errOut.String()
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			if may := strings.Contains(text, "may exist"); may != (tc.wantLeft > 0) {
				t.Errorf("said\n%s", text)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(c.objects) != tc.wantLeft || c.lists != tc.wantLists {
				t.Errorf("%d InterceptRequests are left after %d lists, want %d and %d", len(c.objects), c.lists, tc.wantLeft, tc.wantLists)
			}
		})
	}
}

// TestInterceptDeletedBeforeItsWatch deletes the InterceptRequest after the plugin has read it, and before it watches it.
func TestInterceptDeletedBeforeItsWatch(t *testing.T) {
	c := newInterceptCluster(t)
	c.afterGet = func() {
		c.gone = maps.Clone(c.objects)
		clear(c.objects)
		c.change(nil)
	}
	r := c.start("intercept", "web", "--port", "8080", "--to", echoServer(t))
	r.await(t, report.ExitOK)
	r.errOut.await(t, "Ended: the InterceptRequest was deleted")
}

// TestInterceptUnreadable takes the user's rights while their machine is not connected. Then nothing else would tell the end.
func TestInterceptUnreadable(t *testing.T) {
	c := newInterceptCluster(t)
	r := c.start("intercept", "web", "--port", "8080", "--to", echoServer(t))
	r.errOut.await(t, "web-1 on n1: Active")
	c.say(c.peer(c.carrier), "hello")
	c.mu.Lock()
	c.getErr = apierrors.NewForbidden(interceptResource, "web-x7k2p", fmt.Errorf(`User "alice" cannot get resource`))
	c.proxyErr, c.noWatch = apierrors.NewServiceUnavailable("no endpoints"), true
	c.change(nil)
	c.mu.Unlock()
	c.cutTunnels()
	r.await(t, report.ExitError)
	for _, want := range []string{
		"Lost: this machine is not connected", "This machine is not connected, so the app answers: ",
		"error: this machine is not connected, and you may no longer read the InterceptRequest: Error from server (Forbidden)",
	} {
		if got := strings.Count(r.errOut.String(), want); got != 1 {
			t.Errorf("%q is %d times in\n%s", want, got, r.errOut)
		}
	}
}

// TestSayUnread: an error that lasts is said once, also if its text has the ports of this machine.
func TestSayUnread(t *testing.T) {
	out, said := newOutput(), map[string]bool{}
	i := &runningIntercept{display: live.NewPlain(out, clock.RealClock{})}
	for _, port := range []string{"50001", "50002", "50003"} {
		i.sayUnread(said, errors.New("read udp 10.0.0.5:"+port+"->10.0.0.1:53: i/o timeout"), false)
	}
	i.sayUnread(said, errors.New("network is unreachable"), false)
	i.sayUnread(said, errors.New("network is unreachable"), true)
	i.sayUnread(said, errors.New("network is unreachable"), false)
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{
		"This machine is not connected, so the app answers: read udp 10.0.0.5:50001->10.0.0.1:53: i/o timeout",
		"This machine is not connected, so the app answers: network is unreachable",
		"Reading the InterceptRequest failed, the intercept goes on: network is unreachable",
	}
	if len(got) != len(want) || !slices.EqualFunc(got, want, strings.HasSuffix) {
		t.Errorf("said\n%s", out)
	}
}

// TestInterceptCountsToItsEnd: however an intercept ends, the last lines count all requests that the developer's process has answered,
// although no report has come. They say once why it ended, and nothing of the tunnel that ended with it.
func TestInterceptCountsToItsEnd(t *testing.T) {
	over := func(phase v1alpha1.InterceptPhase, reason, message string) func(*interceptCluster, *run) {
		return func(c *interceptCluster, _ *run) {
			c.cutTunnels() // the manager removes the route first
			c.later(func(o *v1alpha1.InterceptRequest) {
				o.Status.Phase, o.Status.Pods, o.Status.Conditions = phase, nil, nil
				for _, kind := range []string{v1alpha1.ConditionAdmitted, v1alpha1.ConditionStowawayReady, v1alpha1.ConditionIntercepted} {
					o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message})
				}
			})
		}
	}
	const forbidden = "alice lacks the verb intercept on pods"
	for name, tc := range map[string]struct {
		end      func(*interceptCluster, *run)
		wantCode int
		want     string
		once     string // is in the output once
	}{
		"interrupted": {end: func(_ *interceptCluster, r *run) { r.signals <- os.Interrupt }, want: "Ended: the app answers", once: "the app answers"},
		"deleted by down": {end: func(c *interceptCluster, _ *run) {
			c.cutTunnels()
			c.mu.Lock()
			defer c.mu.Unlock()
			clear(c.objects)
			c.change(nil)
		}, want: "Ended: the InterceptRequest was deleted", once: "Now the app answers"},
		"expired": {end: over(v1alpha1.InterceptEnded, "Expired", "8h"), want: "Ended: the intercept has expired", once: "Run the command again"},
		"failed":  {end: over(v1alpha1.InterceptFailed, "Forbidden", forbidden), wantCode: 1, want: "Failed: the app answers", once: forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInterceptCluster(t)
			r := c.start("intercept", "web", "--port", "8080", "--to", echoServer(t))
			r.errOut.await(t, "web-1 on n1: Active")
			carrier := c.peer(c.carrier)
			c.say(carrier, "one connection")
			s, err := carrier.Open(t.Context(), tunnel.PathOpen+"uid-1", nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(s, make([]byte, len("laptop "))); err != nil {
				t.Fatal(err)
			}
			for range 2 { // and two requests on another
				const request = "GET / HTTP/1.1\r\nHost: web\r\n\r\n"
				_, _ = io.WriteString(s, request)
				if _, err := io.ReadFull(s, make([]byte, len(request))); err != nil {
					t.Fatal(err)
				}
			}
			tc.end(c, r)
			r.await(t, tc.wantCode)
			r.errOut.await(t, "web-1 on n1: Ended, 3 requests, 158 B, 0 failed\n")
			r.errOut.await(t, tc.want)
			for text, want := range map[string]int{tc.once: 1, "connecting again": 0} {
				if got := strings.Count(r.errOut.String(), text); got != want {
					t.Errorf("%q is %d times in\n%s", text, got, r.errOut)
				}
			}
		})
	}
}

// TestInterceptOfNothing warns of a process that does not listen, and refuses its streams.
func TestInterceptOfNothing(t *testing.T) {
	c := newInterceptCluster(t)
	r := c.start("intercept", "web", "--port", "8080", "--to", "127.0.0.1:1", "--header", "a=1", "--header", "A=2")
	r.errOut.await(t, "Warning: all conditions must hold, so a request matches only if it has the header a more than once")
	r.errOut.await(t, "Warning: nothing answers at 127.0.0.1:1")
	carrier := c.peer(c.carrier)
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err = carrier.Open(t.Context(), tunnel.PathOpen+"uid-1", nil); strings.Contains(fmt.Sprint(err), "502") {
			break
		}
	}
	if !strings.Contains(fmt.Sprint(err), "refused with status 502: nothing answers at 127.0.0.1:1") {
		t.Errorf("error %v", err)
	}
	r.signals <- os.Interrupt
	r.await(t, report.ExitOK)
}

// TestInterceptOfALateProcess checks that the warning ends when the process listens, also if no request comes.
func TestInterceptOfALateProcess(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)
	r := newInterceptCluster(t).start("intercept", "web", "--port", "8080", "--to", address)
	r.errOut.await(t, "Warning: nothing answers at "+address)
	if err := unix.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	r.errOut.await(t, address+" answers now")
	r.signals <- os.Interrupt
	r.await(t, report.ExitOK)
}

// The plugin connects to no address that the user did not give, also if a webhook of the cluster has changed the InterceptRequest.
func TestInterceptOfAnotherAddress(t *testing.T) {
	c := newInterceptCluster(t)
	c.mutate = func(o *v1alpha1.InterceptRequest) { o.Spec.DestinationIP = "127.0.0.2" }
	r := c.start("intercept", "web", "--port", "8080", "--to", "127.0.0.1:1")
	r.await(t, report.ExitError)
	r.errOut.await(t, "the cluster changed the address of your process from 127.0.0.1:1 to 127.0.0.2:1")
	if c.left() != 0 {
		t.Error("the InterceptRequest is still there")
	}
}

// TestDownGoesOnAfterAnError: each InterceptRequest that can be deleted is, and each error is printed.
func TestDownGoesOnAfterAnError(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"own": {args: []string{"down"}, want: []string{"a1"}},
		"named": {
			args: []string{"down", "none", "deploy/web", "a1", "interceptrequest.monitoring.openshift.tpg/a2", "a3", "interceptrequest/a4"},
			want: []string{"namespace shop has no InterceptRequest none", "deploy/web is no InterceptRequest: write the NAME", `"a1" is forbidden`, `"a3" is forbidden`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInterceptCluster(t)
			c.locked = map[string]bool{"a1": true, "a3": true}
			for n := 1; n <= 4; n++ {
				c.add(fmt.Sprint("a", n), "alice")
			}
			r := c.start(tc.args...)
			r.await(t, report.ExitError)
			if got := strings.Count(r.out.String(), " deleted: "); got != 2 || c.left() != 2 {
				t.Errorf("%d are left, and printed was\n%s", c.left(), r.out)
			}
			for _, want := range tc.want {
				if !strings.Contains(r.errOut.String(), want) {
					t.Errorf("no %q in\n%s", want, r.errOut)
				}
			}
		})
	}
}

// add makes an intercept of a user.
func (c *interceptCluster) add(name, user string) {
	o := &v1alpha1.InterceptRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: "uid-2", CreationTimestamp: metav1.NewTime(time.Now().Add(-5 * time.Hour)),
		Annotations: map[string]string{v1alpha1.AnnotationRequester: `{"requester":{"username":"` + user + `"}}`},
	}, Spec: v1alpha1.InterceptRequestSpec{TargetDeployment: "web", TargetContainerPort: 8080, Match: &v1alpha1.InterceptMatch{
		Headers: []v1alpha1.HeaderMatch{{Name: "x-developer", TextMatch: v1alpha1.TextMatch{Exact: &user}}},
	}}}
	o.Status.Phase = v1alpha1.InterceptActive
	o.Status.Pods = []v1alpha1.InterceptPod{{Name: "web-1", Active: true, InterceptCounters: v1alpha1.InterceptCounters{Matched: 3}}, {Name: "web-2"}}
	o.Status.PodsOmitted = 300
	c.objects[name] = o
}

func TestInterceptsAndDown(t *testing.T) {
	c := newInterceptCluster(t)
	c.add("a1", "alice")
	r := c.start("intercepts")
	r.await(t, report.ExitOK)
	want := "NAME  USER   TARGET          PORT  MATCH              PHASE   PODS   REQUESTS  AGE\na1    alice  Deployment/web  8080  x-developer=alice  Active  1/302  3         5h\n"
	if r.out.String() != want {
		t.Errorf("table\n%s\nwant\n%s", r.out, want)
	}
	for output, want := range map[string]string{
		"name":                              "interceptrequest.monitoring.openshift.tpg/a1\n",
		"jsonpath={.items[*].status.phase}": "Active",
		"json":                              `"kind": "InterceptRequestList"`,
	} {
		r = c.start("intercepts", "-o", output)
		r.await(t, report.ExitOK)
		if got := r.out.String(); !strings.Contains(got, want) {
			t.Errorf("-o %s prints %q, want %q", output, got, want)
		}
	}
	c.add("b1", "bob")
	r = c.start("down")
	r.await(t, report.ExitOK)
	if got := r.out.String(); got != "interceptrequest.monitoring.openshift.tpg/a1 deleted: it no longer intercepts Deployment/web port 8080\n" || c.left() != 1 {
		t.Errorf("down prints %q and leaves %d", got, c.left())
	}
	r = c.start("intercept", "down")
	r.await(t, report.ExitOK)
	r.errOut.await(t, "You have no intercepts")
	r = c.start("down", "b1")
	r.await(t, report.ExitOK)
	if c.left() != 0 {
		t.Error("a named intercept is left")
	}
	r = c.start("intercepts", "-A")
	r.await(t, report.ExitOK)
	r.errOut.await(t, "No intercepts found")
}

func TestInterceptPortByName(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want int32
		says string
	}{
		"name":           {args: []string{"web", "--port", "http"}, want: 8080},
		"sidecar":        {args: []string{"web", "--port", "proxy"}, want: 15001},
		"container":      {args: []string{"web", "--port", "admin", "--container", "log"}, want: 9001},
		"two":            {args: []string{"web", "--port", "admin"}, says: "several ports of Deployment shop/web have this name, with different numbers: add --container, or write the number"},
		"UDP":            {args: []string{"web", "--port", "dns"}, says: "no TCP port of Deployment shop/web has this name: write one of http, admin, proxy, or the number"},
		"no names":       {args: []string{"web", "--port", "http", "--container", "db"}, says: "Deployment shop/web has no container db: write another --container"},
		"no right":       {args: []string{"sts/db", "--port", "sql"}, says: "would have to read StatefulSet shop/db, which you may not: write the number"},
		"not there":      {args: []string{"pod/db", "--port", "sql"}, says: `pods "db" not found`},
		"not a port":     {args: []string{"web", "--port", "99999999999"}, says: "--port: write the port on which the container listens"},
		"negative":       {args: []string{"web", "--port", "-1"}, says: "--port: write the port on which the container listens"},
		"without":        {args: []string{"web"}, says: "--port: write the port on which the container listens"},
		"may not delete": {args: []string{"web", "--port", "80"}, says: "you may not delete InterceptRequests in namespace shop, so this command could not end the intercept: ask an admin for the ClusterRole sonde-intercept there"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newInterceptCluster(t)
			c.mayNotDelete = name == "may not delete"
			r := c.start(append([]string{"intercept", "--to", "127.0.0.1:1"}, tc.args...)...)
			if tc.says != "" {
				r.await(t, report.ExitError)
				if got := r.errOut.String(); !strings.Contains(got, tc.says) || len(c.created) > 0 {
					t.Errorf("says %q, and creates %d InterceptRequests", got, len(c.created))
				}
				return
			}
			r.errOut.await(t, "Active")
			r.signals <- os.Interrupt
			r.await(t, report.ExitOK)
			if got := c.created[0].TargetContainerPort; got != tc.want {
				t.Errorf("port %d, want %d", got, tc.want)
			}
		})
	}
}

// TestRemoveInterceptPageNotFound: a 404 of a load balancer does not say that the InterceptRequest is gone.
func TestRemoveInterceptPageNotFound(t *testing.T) {
	page := apierrors.NewGenericServerResponse(http.StatusNotFound, "delete", schema.GroupResource{}, "", "404 page not found", 0, true)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	o := &v1alpha1.InterceptRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	for name, funcs := range map[string]interceptor.Funcs{
		"to the deletion": {Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return page }},
		"to the reading": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return page
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(o.DeepCopy()).WithInterceptorFuncs(funcs).Build()
			if _, err := removeIntercept(t.Context(), c, o); err == nil {
				t.Error("it counts as deleted")
			}
		})
	}
}
