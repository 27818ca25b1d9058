package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/pcapng"
)

// apiServer is as much of an API server, and of the operator behind it, as the plugin sees: the two
// kinds, watches of one capture, and the proxied results endpoint.
type apiServer struct {
	t   *testing.T
	url string

	mu       sync.Mutex
	captures map[string]*v1alpha1.PacketCapture
	accesses int
	version  int
	changed  chan struct{} // closed, and made anew, on each change
	created  []v1alpha1.PacketCaptureSpec
	// refuse, if set, answers creations as a webhook does.
	refuse error
	// files by UID/NAME; breakOnce breaks the first transfer half way.
	files     map[string][]byte
	breakOnce bool
	// onCreate and onStop are the operator: they change a capture's status.
	onCreate, onStop func(*v1alpha1.PacketCapture)
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{t: t, captures: map[string]*v1alpha1.PacketCapture{}, changed: make(chan struct{}), files: map[string][]byte{}}
	const kinds = "/apis/monitoring.openshift.tpg/v1alpha1/"
	const proxied = "/api/v1/namespaces/sonde-system/services/https:sonde-results:https/proxy/v1/namespaces/shop/packetcaptures/"
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+kinds+"namespaces/shop/packetcaptures", s.create)
	mux.HandleFunc("GET "+kinds+"namespaces/shop/packetcaptures", s.list)
	mux.HandleFunc("GET "+kinds+"packetcaptures", s.list)
	mux.HandleFunc("GET "+kinds+"namespaces/shop/packetcaptures/{name}", s.get)
	mux.HandleFunc("PATCH "+kinds+"namespaces/shop/packetcaptures/{name}", s.patch)
	mux.HandleFunc("DELETE "+kinds+"namespaces/shop/packetcaptures/{name}", s.remove)
	mux.HandleFunc("POST "+kinds+"namespaces/shop/resultaccesses", s.grant)
	mux.HandleFunc("DELETE "+kinds+"namespaces/shop/resultaccesses/{name}", s.revoke)
	mux.HandleFunc("GET "+proxied+"{name}/progress", s.progress)
	mux.HandleFunc("GET "+proxied+"{name}/files/{uid}/{file}", s.file)
	server := httptest.NewServer(mux)
	t.Cleanup(server.CloseClientConnections)
	s.url = server.URL
	return s
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

func notFound(name string) error {
	return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("packetcaptures").GroupResource(), name)
}

// change lets the operator act on a capture; the caller holds the lock.
func (s *apiServer) change(pc *v1alpha1.PacketCapture, act func(*v1alpha1.PacketCapture)) {
	if act != nil {
		act(pc)
	}
	s.version++
	pc.ResourceVersion = fmt.Sprint(s.version)
	close(s.changed)
	s.changed = make(chan struct{})
}

// later changes a capture as the operator would at some time.
func (s *apiServer) later(name string, act func(*v1alpha1.PacketCapture)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change(s.captures[name], act)
}

func (s *apiServer) create(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pc := &v1alpha1.PacketCapture{}
	if err := json.NewDecoder(r.Body).Decode(pc); err != nil {
		s.t.Errorf("create: %v", err)
	}
	s.created = append(s.created, pc.Spec)
	if s.refuse != nil {
		s.fail(w, s.refuse)
		return
	}
	if pc.Name == "" {
		pc.Name = pc.GenerateName + "x7k2p"
	}
	if pc.Spec.Duration == "" {
		pc.Spec.Duration = "60s"
	}
	pc.UID, pc.CreationTimestamp = "uid-1", metav1.Now()
	s.captures[pc.Name] = pc
	s.change(pc, nil)
	s.answer(w, http.StatusCreated, pc)
	s.change(pc, s.onCreate)
}

func (s *apiServer) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pc := s.captures[r.PathValue("name")]; pc != nil {
		s.answer(w, http.StatusOK, pc)
		return
	}
	s.fail(w, notFound(r.PathValue("name")))
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		s.watch(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := v1alpha1.PacketCaptureList{}
	for _, pc := range s.captures {
		l.Items = append(l.Items, *pc)
	}
	s.answer(w, http.StatusOK, l)
}

// watch sends the capture on each change; a resource version is not needed for that.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	if !ok {
		s.t.Errorf("watch of everything: %s", r.URL.RawQuery)
	}
	w.Header().Set("Content-Type", "application/json")
	var last *v1alpha1.PacketCapture
	for {
		s.mu.Lock()
		pc, changed := s.captures[name].DeepCopy(), s.changed
		s.mu.Unlock()
		event := map[string]any{"type": "MODIFIED", "object": pc}
		if pc == nil {
			event = map[string]any{"type": "DELETED", "object": last}
		}
		if b, err := json.Marshal(event); err == nil {
			_, _ = w.Write(b)
		}
		if pc == nil {
			return
		}
		last = pc
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *apiServer) patch(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	if string(b) != `{"spec":{"stop":true}}` {
		s.t.Errorf("patched by %s", b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pc := s.captures[r.PathValue("name")]
	if pc == nil {
		s.fail(w, notFound(r.PathValue("name")))
		return
	}
	pc.Spec.Stop = true
	s.answer(w, http.StatusOK, pc) // as it is before the operator knows
	s.change(pc, s.onStop)
}

func (s *apiServer) remove(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pc := s.captures[r.PathValue("name")]
	if pc == nil {
		s.fail(w, notFound(r.PathValue("name")))
		return
	}
	delete(s.captures, pc.Name)
	s.change(pc, nil)
	s.answer(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
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

// progress counts for one Pod until the capture has ended.
func (s *apiServer) progress(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Sonde-Token") == "" {
		s.t.Error("progress without a token")
	}
	for n := 0; ; n++ {
		s.mu.Lock()
		pc := s.captures[r.PathValue("name")]
		over := pc == nil || pc.Status.Phase.Final()
		s.mu.Unlock()
		if over {
			return
		}
		fmt.Fprintf(w, `{"pod":"web-1","uid":"u1","node":"n1","phase":"Capturing","account":{"v":1,"state":"capturing","seen":%[1]d,"packets":%[1]d}}`+"\n", n)
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

// packets is a capture file with one packet at each time, in nanoseconds.
func packets(times ...uint64) []byte {
	b := pcapng.AppendSection(nil, &pcapng.Section{Application: "sonde"})
	b = pcapng.AppendInterface(b, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	for _, at := range times {
		b = pcapng.AppendPacket(b, &pcapng.Packet{Time: at, Data: make([]byte, 60), Length: 60})
	}
	return b
}

// twoPods puts a capture of two Pods into phase, with their files.
func (s *apiServer) twoPods(phase v1alpha1.Phase) func(*v1alpha1.PacketCapture) {
	return func(pc *v1alpha1.PacketCapture) {
		pc.Status.Phase, pc.Status.Target, pc.Status.JobID, pc.Status.Pods = phase, "Deployment/web", "qwer", nil
		for i, times := range [][]uint64{{1, 3, 5}, {2, 4}} {
			uid, name := fmt.Sprintf("u%d", i+1), fmt.Sprintf("web-%d", i+1)
			p := v1alpha1.PodResult{UID: uid, Name: name, Node: "n1", Phase: phase}
			if phase.Final() {
				b := packets(times...)
				p.Reason, p.Packets, p.Bytes = v1alpha1.ReasonDuration, int64(len(times)), 60*int64(len(times))
				p.Files = []v1alpha1.ResultFile{{Name: name + "-qwer.pcapng", Bytes: int64(len(b))}}
				s.files[uid+"/"+name+"-qwer.pcapng"] = b
			}
			pc.Status.Pods = append(pc.Status.Pods, p)
		}
	}
}
