package results

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

const (
	token    = "0123456789abcdef0123456789abcdef"
	operator = "sonde-system"
	progress = "/v1/namespaces/shop/packetcaptures/web/progress"
	webFile  = "/v1/namespaces/shop/packetcaptures/web/files/pod-1/web-1-qwer.pcapng"
)

var testKey = bytes.Repeat([]byte{7}, stamp.KeyBytes)

// rights that every user has; tests revoke them while a stream runs.
type rights struct {
	mu    sync.Mutex
	verb  string // that they are of; capture if empty
	pods  bool
	nodes bool
}

func (r *rights) of() string { return cmp.Or(r.verb, sondev1.VerbCapture) }

func (r *rights) set(pods, nodes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods, r.nodes = pods, nodes
}

func (r *rights) ReviewPods(_ context.Context, verb string, _ access.Requester, _ string) (access.Decision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return access.Decision{Allowed: r.pods && verb == r.of(), Reason: "lacks " + verb + " on pods"}, nil
}

func (r *rights) ReviewNodes(_ context.Context, verb string, _ access.Requester) (access.Decision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return access.Decision{Allowed: r.nodes && verb == r.of(), Reason: "lacks " + verb + " on nodes"}, nil
}

// world is a cluster with one capture, web in shop, of one Pod whose keeper is a real TLS server.
type world struct {
	t       *testing.T
	client  client.Client
	rights  *rights
	events  *events.FakeRecorder
	keeper  *fakeKeeper
	handler *Handler
	server  *httptest.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, sondev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	pairs, err := keeperapi.GeneratePairs(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, rights: &rights{pods: true}, events: events.NewFakeRecorder(64), keeper: newFakeKeeper(t, pairs)}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&sondev1.PacketCapture{}, &sondev1.Trace{})
	for _, i := range target.Indexes {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	w.client = b.Build()
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "uid-shop"}})
	w.create(w.capture())
	w.create(w.access("mine", nil))
	w.create(&corev1.Secret{ObjectMeta: w.owned("shop-web-keeper", ""), Data: pairs})
	w.create(agent(w.owned("web-1-qwer-x", "pod-1")))
	w.handler = New(Config{
		Cache: w.cache(), Live: w.client, Reviews: w.rights, Key: testKey, Namespace: operator,
		Recorder: w.events, Clock: clock.RealClock{}, Drain: NewDrain(0, 0, clock.RealClock{}),
	})
	w.handler.address = func(*corev1.Pod) string { return w.keeper.addr }
	w.handler.poll, w.handler.heartbeat, w.handler.recheck, w.handler.retry = 5*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond, 10*time.Millisecond
	w.server = httptest.NewServer(w.handler)
	t.Cleanup(w.server.Close)
	return w
}

// cache reads objects as the manager's cache holds them: Pods, and captures that have ended, have few fields.
func (w *world) cache() client.Reader {
	return interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			_, err := target.Strip(o)
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := c.List(ctx, l, opts...); err != nil {
				return err
			}
			if pods, ok := l.(*corev1.PodList); ok {
				for i := range pods.Items {
					pods.Items[i] = *target.StripAgent(&pods.Items[i])
				}
			}
			return nil
		},
	})
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := w.client.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(o client.Object) {
	w.t.Helper()
	if err := w.client.Delete(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// change updates an existing object and its status.
func change[T client.Object](w *world, o T, fn func(T)) {
	w.t.Helper()
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		w.t.Fatal(err)
	}
	fn(o)
	if err := w.client.Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
	fn(o) // the answer has brought the old status back
	if err := w.client.Status().Update(w.t.Context(), o); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

func (w *world) stamped(kind string, spec any, namespaceUID string) map[string]string {
	w.t.Helper()
	a, err := stamp.Sign(testKey, "shop", kind, spec, stamp.Claim{
		Requester: access.Requester{Username: "alice"}, TargetNamespaceUID: namespaceUID, IssuedAt: time.Now(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) capture() *sondev1.PacketCapture {
	pc := &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "capture-1", CreationTimestamp: metav1.Now()},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "web", Duration: "30", RetainFor: "1h"},
		Status: sondev1.CaptureStatus{Phase: sondev1.PhaseCapturing, Pods: []sondev1.PodResult{
			{UID: "pod-1", Name: "web-1", Node: "n1", Phase: sondev1.PhaseCapturing},
		}},
	}
	pc.Annotations = w.stamped(stamp.KindPacketCapture, pc.Spec, "uid-shop")
	return pc
}

func (w *world) access(name string, edit func(*sondev1.ResultAccess)) *sondev1.ResultAccess {
	ra := &sondev1.ResultAccess{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now()},
		Spec: sondev1.ResultAccessSpec{
			CaptureRef: sondev1.CaptureReference{Kind: sondev1.CapturePacketCapture, Name: "web"},
			TokenHash:  tokenHash(), ExpirationSeconds: 900,
		},
	}
	if edit != nil {
		edit(ra)
	}
	if ra.Annotations == nil {
		ra.Annotations = w.stamped(stamp.KindResultAccess, ra.Spec, "uid-shop")
	}
	return ra
}

// tokenHash of the token, which users who may read ResultAccesses know.
func tokenHash() string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func keyOf(m metav1.ObjectMeta) client.ObjectKey {
	return client.ObjectKey{Namespace: m.Namespace, Name: m.Name}
}

// owned is the metadata of an object made for the capture.
func (w *world) owned(name, podUID string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: operator, Name: name, Labels: map[string]string{sondev1.LabelUID: "capture-1"}}
	if podUID != "" {
		m.Labels[sondev1.LabelTargetPodUID] = podUID
		m.Annotations = map[string]string{sondev1.AnnotationTargetPod: "web-1", sondev1.AnnotationTargetNode: "n1"}
	}
	return m
}

func agent(m metav1.ObjectMeta) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: m,
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{
			{Name: captureconfig.ContainerProbe, Args: []string{"probe", "--pod-name", "web-1"}}, {Name: captureconfig.ContainerKeeper},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{
			{Name: captureconfig.ContainerKeeper, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}},
	}
}

// answer to a request; the body is closed when the test has ended.
type answer struct {
	code   int
	header http.Header
	length int64
	body   io.ReadCloser
}

// get sends a request with the token, unless headers say otherwise ("" leaves one out).
func (w *world) get(path string, headers map[string]string) answer {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.server.URL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set(TokenHeader, token)
	for k, v := range headers {
		if v == "" {
			req.Header.Del(k)
		} else {
			req.Header.Set(k, v)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	return answer{resp.StatusCode, resp.Header, resp.ContentLength, resp.Body}
}

// fails fails the test unless resp is a refusal with this code that says text.
func (w *world) fails(resp answer, code int, text string) {
	w.t.Helper()
	body, err := io.ReadAll(io.LimitReader(resp.body, 2048))
	if err != nil {
		w.t.Fatal(err)
	}
	var e struct {
		Error string `json:"error"`
	}
	if resp.code != code || json.Unmarshal(body, &e) != nil || !strings.Contains(e.Error, text) {
		w.t.Errorf("got %d %s, want %d and an error that says %q", resp.code, body, code, text)
	}
}

// fakeKeeper speaks the keeper's protocol with the keys of the capture.
type fakeKeeper struct {
	addr     string
	content  []byte
	breakAt  int // bytes of a file after which the connection breaks; 0: never
	mu       sync.Mutex
	accounts chan account.Account // sent to the next watch; closed: the connection breaks
	lines    chan string          // sent live; closed: the end
	watching atomic.Int32         // watches that run
}

// next returns the channel for a watch that begins now.
func (k *fakeKeeper) next() chan account.Account {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.accounts
}

// replace makes a new channel for later watches.
func (k *fakeKeeper) replace() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.accounts = make(chan account.Account, 16)
}

func newFakeKeeper(t *testing.T, pairs map[string][]byte) *fakeKeeper {
	t.Helper()
	k := &fakeKeeper{content: bytes.Repeat([]byte("0123456789"), 100_000), accounts: make(chan account.Account, 16), lines: make(chan string)}
	config, err := keeperapi.ServerTLS(pairs[captureconfig.SecretServerCert], pairs[captureconfig.SecretServerKey], pairs[captureconfig.SecretClientCert])
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(k)
	s.TLS = config
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	k.addr = s.Listener.Addr().String()
	return k
}

func (k *fakeKeeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	keeperapi.SetVersion(w.Header())
	name, isFile := strings.CutPrefix(r.URL.Path, keeperapi.PathFiles)
	switch {
	case r.URL.Path == keeperapi.PathProgress && r.URL.Query().Get(keeperapi.QueryWatch) == "1":
		k.watch(w, r)
	case r.URL.Path == keeperapi.PathLive+"web-1-qwer.ndjson" || r.URL.Path == keeperapi.PathLive+ringFile:
		k.live(w, r)
	case isFile && name == "web-1-qwer.pcapng" && k.breakAt > 0:
		w.Header().Set("Content-Length", fmt.Sprint(len(k.content)))
		_, _ = w.Write(k.content[:k.breakAt])
		panic(http.ErrAbortHandler)
	case isFile && (name == "web-1-qwer.pcapng" || name == "web-1-qwer.ndjson"):
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(k.content))
	case isFile && name == "locked.pcapng":
		http.Error(w, `{"error":"no permission"}`, http.StatusForbidden)
	default:
		http.Error(w, `{"error":"no such file"}`, http.StatusNotFound)
	}
}

func (k *fakeKeeper) live(w http.ResponseWriter, r *http.Request) {
	for line, ok := r.URL.RawQuery+"\n", true; ok; {
		_, _ = io.WriteString(w, line)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case line, ok = <-k.lines:
		}
	}
}

func (k *fakeKeeper) watch(w http.ResponseWriter, r *http.Request) {
	accounts := k.next()
	k.watching.Add(1)
	defer k.watching.Add(-1)
	for {
		select {
		case <-r.Context().Done():
			return
		case a, ok := <-accounts:
			if !ok {
				panic(http.ErrAbortHandler)
			}
			b, err := a.Marshal()
			if err != nil {
				panic(err)
			}
			_, _ = w.Write(append(b, '\n'))
			_ = http.NewResponseController(w).Flush()
			if a.State == account.StateDone {
				return
			}
		}
	}
}
