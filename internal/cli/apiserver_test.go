package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// apiServer simulates the parts of the API server and of the operator that the plugin uses: the kinds, watches of one capture, and
// the proxied results endpoint.
type apiServer struct {
	t   testing.TB
	url string
	mux *http.ServeMux

	mu       sync.Mutex
	captures map[string]v1alpha1.Capture // by RESOURCE/NAME
	accesses int
	version  int
	changed  chan struct{} // closed and replaced at each change
	created  []any         // specs
	// refuse, if set, answers requests to create, as a webhook does.
	refuse error
	// warning, if set, comes with each object that is created.
	warning string
	// files by UID/NAME; breakOnce breaks the first download in the middle.
	files     map[string][]byte
	breakOnce bool
	rings     map[string][]byte // streams of rings of files, by the UID of their Pod; nil: a Pod has one file
	noLive    bool              // like an older operator
	expired   bool              // growing files are gone
	busy      int               // requests for a growing file that find no place
	streams   map[string]int    // requests for a growing file, by the UID of its Pod
	// podIP is the address of Pod shop/web-1. Listing Pods and Services is forbidden if it is empty, and in all namespaces at once.
	podIP string
	// onCreate and onStop change the status of a capture, as the operator does.
	onCreate, onStop func(v1alpha1.Capture)
}

// newAPIServer serves PacketCaptures, like an older operator, and more kinds.
func newAPIServer(tb testing.TB, more ...kind.Capture) *apiServer {
	tb.Helper()
	s := &apiServer{t: tb, podIP: "10.0.0.1", captures: map[string]v1alpha1.Capture{}, changed: make(chan struct{}), files: map[string][]byte{}, streams: map[string]int{}}
	const kinds = "/apis/monitoring.openshift.tpg/v1alpha1/"
	const proxied = "/api/v1/namespaces/sonde-system/services/https:sonde-results:https/proxy/v1/namespaces/shop/"
	mux := http.NewServeMux()
	for _, k := range append([]kind.Capture{kind.PacketCapture}, more...) {
		of := func(handle func(kind.Capture, http.ResponseWriter, *http.Request)) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { handle(k, w, r) }
		}
		mux.HandleFunc("POST "+kinds+"namespaces/shop/"+k.Resource, of(s.create))
		mux.HandleFunc("GET "+kinds+"namespaces/shop/"+k.Resource, of(s.list))
		mux.HandleFunc("GET "+kinds+k.Resource, of(s.list))
		mux.HandleFunc("GET "+kinds+"namespaces/shop/"+k.Resource+"/{name}", of(s.get))
		mux.HandleFunc("PATCH "+kinds+"namespaces/shop/"+k.Resource+"/{name}", of(s.patch))
		mux.HandleFunc("DELETE "+kinds+"namespaces/shop/"+k.Resource+"/{name}", of(s.remove))
		mux.HandleFunc("GET "+proxied+k.Resource+"/{name}/progress", of(s.progress))
		mux.HandleFunc("GET "+proxied+k.Resource+"/{name}/files/{uid}/{file}", s.file)
		mux.HandleFunc("GET "+proxied+k.Resource+"/{name}/live/{uid}/{file}", of(s.live))
	}
	for _, resource := range []string{"pods", "services"} {
		mux.HandleFunc("GET /api/v1/"+resource, func(w http.ResponseWriter, _ *http.Request) {
			s.fail(w, apierrors.NewForbidden(corev1.Resource(resource), "", errors.New("cluster scope")))
		})
	}
	mux.HandleFunc("GET /api/v1/namespaces/shop/pods", s.pods)
	mux.HandleFunc("GET /api/v1/namespaces/shop/services", s.services)
	for _, plural := range []string{"deployments", "statefulsets", "daemonsets"} {
		mux.HandleFunc("GET /apis/apps/v1/namespaces/shop/"+plural, s.workloads)
	}
	mux.HandleFunc("POST "+kinds+"namespaces/shop/resultaccesses", s.grant)
	mux.HandleFunc("DELETE "+kinds+"namespaces/shop/resultaccesses/{name}", s.revoke)
	s.mux = mux
	server := httptest.NewServer(mux)
	tb.Cleanup(server.CloseClientConnections)
	s.url = server.URL
	return s
}

// keyOf returns the key of a capture.
func keyOf(c v1alpha1.Capture) string { return strings.ToLower(c.KindName()) + "s/" + c.GetName() }

// named returns the capture of a request. The caller holds the lock.
func (s *apiServer) named(k kind.Capture, r *http.Request) v1alpha1.Capture {
	return s.captures[k.Resource+"/"+r.PathValue("name")]
}

// add adds a capture of two Pods.
func (s *apiServer) add(c v1alpha1.Capture, phase v1alpha1.Phase) v1alpha1.Capture {
	setKind(c)
	c.SetNamespace("shop")
	c.SetName("web")
	c.SetUID("uid-1")
	c.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-5 * time.Hour)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.twoPods(phase)(c)
	s.captures[keyOf(c)] = c
	return c
}

func (s *apiServer) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Errorf("answer: %v", err)
	}
}

func (s *apiServer) fail(w http.ResponseWriter, err error) {
	status := metav1.Status{Status: metav1.StatusFailure, Message: err.Error(), Code: 500}
	if e, ok := err.(apierrors.APIStatus); ok {
		status = e.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	s.answer(w, int(status.Code), status)
}

func notFound(k kind.Capture, r *http.Request) error {
	return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(k.Resource).GroupResource(), r.PathValue("name"))
}

// change changes a capture. The caller holds the lock.
func (s *apiServer) change(c v1alpha1.Capture, act func(v1alpha1.Capture)) {
	if act != nil {
		act(c)
	}
	s.version++
	c.SetResourceVersion(fmt.Sprint(s.version))
	close(s.changed)
	s.changed = make(chan struct{})
}

// later changes a capture after a while, as the operator would.
func (s *apiServer) later(key string, act func(v1alpha1.Capture)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(s.captures[key], act)
}

func copyOf(c v1alpha1.Capture) v1alpha1.Capture {
	if c == nil {
		return nil
	}
	return c.DeepCopyObject().(v1alpha1.Capture)
}

func (s *apiServer) create(k kind.Capture, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := k.New()
	if err := json.NewDecoder(r.Body).Decode(c); err != nil {
		s.t.Errorf("create: %v", err)
	}
	s.created = append(s.created, copyOf(c).CaptureSpec())
	if s.refuse != nil {
		s.fail(w, s.refuse)
		return
	}
	if r.URL.Query().Get("dryRun") != "" {
		s.answer(w, http.StatusCreated, c)
		return
	}
	if c.GetName() == "" {
		c.SetName(c.GetGenerateName() + "x7k2p")
	}
	if pc, ok := c.(*v1alpha1.PacketCapture); ok && pc.Spec.Duration == "" {
		pc.Spec.Duration = "60s"
	}
	c.SetUID("uid-1")
	c.SetCreationTimestamp(metav1.Now())
	s.captures[keyOf(c)] = c
	s.change(c, nil)
	if s.warning != "" {
		w.Header().Set("Warning", fmt.Sprintf("299 - %q", s.warning))
	}
	s.answer(w, http.StatusCreated, c)
	s.change(c, s.onCreate)
}

func (s *apiServer) get(k kind.Capture, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.named(k, r); c != nil {
		s.answer(w, http.StatusOK, c)
		return
	}
	s.fail(w, notFound(k, r))
}

func (s *apiServer) list(k kind.Capture, w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		s.watch(k, w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for _, c := range s.captures {
		if c.KindName() == k.Name {
			items = append(items, c)
		}
	}
	s.answer(w, http.StatusOK, map[string]any{"items": items})
}

// watch sends the capture on each change; a resource version is not needed for that.
func (s *apiServer) watch(k kind.Capture, w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	if !ok {
		s.t.Errorf("watch of everything: %s", r.URL.RawQuery)
	}
	w.Header().Set("Content-Type", "application/json")
	var last v1alpha1.Capture
	for {
		s.mu.Lock()
		c, changed := copyOf(s.captures[k.Resource+"/"+name]), s.changed
		s.mu.Unlock()
		event := map[string]any{"type": "MODIFIED", "object": c}
		if c == nil {
			event = map[string]any{"type": "DELETED", "object": last}
		}
		if b, err := json.Marshal(event); err == nil {
			_, _ = w.Write(b)
		}
		if c == nil {
			return
		}
		last = c
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *apiServer) patch(k kind.Capture, w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	var patch struct {
		Metadata struct {
			UID types.UID `json:"uid,omitempty"`
		} `json:"metadata,omitzero"`
		Spec struct {
			Stop bool `json:"stop"`
		} `json:"spec"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&patch); err != nil || !patch.Spec.Stop {
		s.t.Errorf("patched by %s: %v", b, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.named(k, r)
	if uid := patch.Metadata.UID; c != nil && uid != "" && uid != c.GetUID() {
		s.fail(w, apierrors.NewInvalid(k.New().GetObjectKind().GroupVersionKind().GroupKind(), c.GetName(),
			field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable")}))
		return
	}
	switch c := c.(type) {
	case nil:
		s.fail(w, notFound(k, r))
		return
	case *v1alpha1.PacketCapture:
		c.Spec.Stop = true
	case *v1alpha1.Trace:
		c.Spec.Stop = true
	}
	s.answer(w, http.StatusOK, c) // before the operator changes it
	s.change(c, s.onStop)
}

func (s *apiServer) remove(k kind.Capture, w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.named(k, r)
	if c == nil {
		s.fail(w, notFound(k, r))
		return
	}
	delete(s.captures, keyOf(c))
	s.change(c, nil)
	s.answer(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}

// workloads lists one Deployment; other kinds are forbidden.
func (s *apiServer) workloads(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, "/deployments") {
		s.fail(w, apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("x").GroupResource(), "", nil))
		return
	}
	s.answer(w, http.StatusOK, metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}},
	})
}

func (s *apiServer) grant(w http.ResponseWriter, r *http.Request) {
	ra := &v1alpha1.ResultAccess{}
	if err := json.NewDecoder(r.Body).Decode(ra); err != nil {
		s.t.Errorf("grant: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accesses++
	ra.Name = fmt.Sprintf("%s%d", ra.GenerateName, s.accesses)
	s.answer(w, http.StatusCreated, ra)
}

func (s *apiServer) revoke(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accesses--
	s.answer(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
}

// progress sends counts of one Pod until the capture has ended.
func (s *apiServer) progress(k kind.Capture, w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Sonde-Token") == "" {
		s.t.Error("progress without a token")
	}
	account, name := `{"v":1,"state":"capturing","seen":%[1]d,"packets":%[1]d`, "web-1-qwer.pcapng"
	if k.Name == kind.Trace.Name {
		account, name = `{"v":3,"state":"capturing","seen":%[1]d,"events":%[1]d`, "web-1-qwer.ndjson"
	}
	s.mu.Lock()
	if s.rings != nil {
		account += `,"files":[{"name":"` + captureconfig.RingFile("web-1-qwer", 1) + `","bytes":1}]`
	} else if _, ok := s.files["u1/"+name]; ok {
		account += `,"files":[{"name":"` + name + `","bytes":1}]`
	}
	s.mu.Unlock()
	account += "}"
	for n := 0; ; n++ {
		s.mu.Lock()
		c := s.named(k, r)
		over := c == nil || c.CaptureStatus().Phase.Final()
		s.mu.Unlock()
		if over {
			return
		}
		fmt.Fprintf(w, `{"pod":"web-1","uid":"u1","node":"n1","phase":"Capturing","account":`+account+"}\n", n)
		w.(http.Flusher).Flush()
		select {
		case <-time.After(10 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
}

func (s *apiServer) file(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	b, ok := s.files[r.PathValue("uid")+"/"+r.PathValue("file")]
	half := s.breakOnce
	s.breakOnce = false
	s.mu.Unlock()
	switch {
	case !ok:
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"error":"kept until noon: capture again"}`)
	case half:
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		_, _ = w.Write(b[:len(b)/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	default:
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}

// live serves a growing file until the capture has ended.
func (s *apiServer) live(k kind.Capture, w http.ResponseWriter, r *http.Request) {
	if s.noLive {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":"no such path: GET ..."}`)
		return
	}
	s.mu.Lock()
	s.streams[r.PathValue("uid")]++
	s.busy--
	refused := s.busy >= 0
	s.mu.Unlock()
	if refused {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error":"this user has 16 streams open"}`)
		return
	}
	if s.expired {
		w.WriteHeader(http.StatusGone)
		fmt.Fprint(w, `{"error":"the files of Pod web-1 are gone"}`)
		return
	}
	var at int
	if _, err := fmt.Sscan(r.URL.Query().Get("from"), &at); err != nil {
		s.t.Errorf("live from %q: %v", r.URL.RawQuery, err)
	}
	for {
		s.mu.Lock()
		b, changed := s.files[r.PathValue("uid")+"/"+r.PathValue("file")], s.changed
		if s.rings != nil {
			b = s.rings[r.PathValue("uid")]
			if r.URL.Query().Get("ring") == "" {
				s.t.Errorf("one file of a ring is asked for: %s", r.URL)
			}
		}
		c := s.named(k, r)
		over := c == nil || c.CaptureStatus().Phase.Final()
		s.mu.Unlock()
		if at < len(b) {
			_, _ = w.Write(b[at:])
			at = len(b)
		}
		w.(http.Flusher).Flush()
		if over {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// streamsOf counts the requests for the growing file of a Pod.
func (s *apiServer) streamsOf(uid string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[uid]
}

// packets returns a capture file with one packet at each time, in nanoseconds.
func packets(times ...uint64) []byte {
	b := pcapng.AppendSection(nil, &pcapng.Section{Application: "sonde"})
	b = pcapng.AppendInterface(b, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	for _, at := range times {
		b = pcapng.AppendPacket(b, &pcapng.Packet{Time: at, Data: make([]byte, 60), Length: 60})
	}
	return b
}

// events returns the trace of a Pod with one event at each second.
func events(tb testing.TB, pod, uid string, lost map[string]uint64, seconds ...uint64) []byte {
	tb.Helper()
	b, err := tracefmt.AppendHeader(nil, tracefmt.Header{Namespace: "shop", Pod: pod, PodUID: uid})
	if err != nil {
		tb.Error(err)
	}
	var lines tracefmt.Encoder
	for _, at := range seconds {
		b = lines.Append(b, &tracefmt.Record{
			Time: time.Unix(int64(at), 0), Call: "openat", Group: "file", PID: 1, HostPID: 7, TID: 1, HostTID: 7, Comm: []byte("web"),
			HasRet: true, Ret: 3, Took: 1500, Path: []byte("/etc/web.conf"),
		})
	}
	b, err = tracefmt.AppendAccount(b, tracefmt.Account{Written: uint64(len(seconds)), Lost: lost, Complete: true, Reason: "Duration"})
	if err != nil {
		tb.Error(err)
	}
	return b
}

// twoPods sets the phase and the files of a capture of two Pods.
func (s *apiServer) twoPods(phase v1alpha1.Phase) func(v1alpha1.Capture) {
	return func(c v1alpha1.Capture) {
		status := c.CaptureStatus()
		status.Phase, status.Target, status.JobID, status.Pods = phase, "Deployment/web", "qwer", nil
		for i, times := range [][]uint64{{1, 3, 5}, {2, 4}} {
			uid, name := fmt.Sprintf("u%d", i+1), fmt.Sprintf("web-%d", i+1)
			p := v1alpha1.PodResult{UID: uid, Name: name, Node: "n1", Phase: phase}
			if phase.Final() {
				p.Reason = v1alpha1.ReasonDuration
				if s.rings != nil {
					s.ringResult(&p, times)
				} else {
					file, b := s.result(c, &p, times)
					s.addFile(&p, file, b)
				}
			}
			status.Pods = append(status.Pods, p)
		}
	}
}

// addFile adds a file to the result of a Pod.
func (s *apiServer) addFile(p *v1alpha1.PodResult, file string, b []byte) {
	p.Files = append(p.Files, v1alpha1.ResultFile{Name: file, Bytes: int64(len(b))})
	s.files[p.UID+"/"+file] = b
}

// ringResult sets the counts and the files of a Pod whose ring has two files with one packet each. Earlier packets were overwritten.
func (s *apiServer) ringResult(p *v1alpha1.PodResult, times []uint64) {
	p.Packets, p.Bytes, p.Overwritten = 2, 120, int64(len(times))-2
	for i, at := range times[p.Overwritten:] {
		s.addFile(p, captureconfig.RingFile(p.Name+"-qwer", uint64(p.Overwritten)+uint64(i)+1), packets(at))
	}
}

// result sets the counts and the file of a Pod.
func (s *apiServer) result(c v1alpha1.Capture, p *v1alpha1.PodResult, times []uint64) (name string, b []byte) {
	n := int64(len(times))
	trace, ok := c.(*v1alpha1.Trace)
	switch {
	case !ok:
		p.Packets, p.Bytes = n, 60*n
		return p.Name + "-qwer.pcapng", packets(times...)
	case trace.Spec.Format == v1alpha1.TraceFlap:
		p.Events, p.Bytes = n, 5
		return p.Name + "-qwer-trace_io_0.log", []byte("FLAP\n")
	}
	var lost map[string]uint64
	if p.UID == "u2" {
		lost, p.Lost = map[string]uint64{"ring": 1}, map[string]int64{"ring": 1}
	}
	b = events(s.t, p.Name, p.UID, lost, times...)
	p.Events, p.Bytes = n, int64(len(b))
	return p.Name + "-qwer.ndjson", b
}

func (s *apiServer) pods(w http.ResponseWriter, _ *http.Request) {
	if s.podIP == "" {
		s.fail(w, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no rule")))
		return
	}
	s.answer(w, http.StatusOK, corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		Items: []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: s.podIP}}},
		}},
	})
}

func (s *apiServer) services(w http.ResponseWriter, _ *http.Request) {
	s.answer(w, http.StatusOK, corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}})
}
