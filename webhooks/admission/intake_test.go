package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/webhooks/admission"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// handler counts the reviews that it gets and admits them when it may.
type handler struct {
	calls   atomic.Int32
	got     webhook.AdmissionRequest
	entered chan struct{} // nil if the handler does not wait
	leave   chan struct{}
}

func (h *handler) Handle(_ context.Context, req webhook.AdmissionRequest) webhook.AdmissionResponse {
	h.calls.Add(1)
	if h.entered != nil {
		h.entered <- struct{}{}
		<-h.leave
	} else {
		h.got = req
	}
	return webhook.Allowed("")
}

// review is the JSON of a creation or an update by alice, in the order of the API server, with about size bytes.
func review(t *testing.T, op admissionv1.Operation, ns, user string, size int) []byte {
	t.Helper()
	padding := map[string]any{"metadata": map[string]any{"annotations": map[string]string{"x": strings.Repeat("x", size)}}}
	req := webhooktest.Request(t, op, "PacketCapture", ns, padding, nil)
	req.UserInfo.Username = user
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: &req.AdmissionRequest})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// post sends a review and returns the answer, its HTTP status, and how many bytes of the review were read.
func post(t *testing.T, hook http.Handler, body []byte, length int64) (resp *admissionv1.AdmissionResponse, status int, read int64) {
	t.Helper()
	c := &counted{Reader: bytes.NewReader(body)}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.NopCloser(c))
	r.ContentLength = length
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	hook.ServeHTTP(w, r)
	var out admissionv1.AdmissionReview
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.Response == nil {
			t.Fatalf("answer %s: %v", w.Body, err)
		}
	}
	return out.Response, w.Code, c.n.Load()
}

// TestIntakeBoundsAReview: a review over the bound is refused with a message for the user.
func TestIntakeBoundsAReview(t *testing.T) {
	for name, tc := range map[string]struct {
		op       admissionv1.Operation
		size     int
		wantCode int32 // of a refusal
		want     string
	}{
		"a usual creation":     {op: admissionv1.Create, size: 2 << 10},
		"all annotations":      {op: admissionv1.Create, size: 256 << 10},
		"most of them escaped": {op: admissionv1.Create, size: 900 << 10},
		"a larger creation":    {admissionv1.Create, 1200 << 10, 413, "the PacketCapture and its metadata have 1200 KiB as JSON, and the operator reads at most 1024 KiB: shorten its fields, labels and annotations"},
		"the API server's max": {admissionv1.Create, 2900 << 10, 413, "shorten its fields"},
		"an update of it":      {op: admissionv1.Update, size: 2900 << 10},
		"a larger update":      {admissionv1.Update, 4 << 20, 413, "at most 3328 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &handler{}
			body := review(t, tc.op, "shop", "alice", tc.size)
			resp, status, read := post(t, admission.NewIntake().Hook(&webhook.Admission{Handler: h}, nil), body, int64(len(body)))
			switch {
			case status != http.StatusOK:
				t.Fatalf("status %d", status)
			case resp.UID != "r-1":
				t.Errorf("the answer is for request %q", resp.UID)
			case tc.wantCode == 0:
				if !resp.Allowed || h.calls.Load() != 1 || h.got.UserInfo.Username != "alice" || h.got.Operation != tc.op || len(h.got.Object.Raw) < tc.size {
					t.Errorf("answer %+v; the handler got %.200v", resp, h.got)
				}
			case resp.Allowed || resp.Result.Code != tc.wantCode || !strings.Contains(resp.Result.Message, tc.want) || h.calls.Load() != 0:
				t.Errorf("%d calls, answer %+v, want a refusal %d with %q", h.calls.Load(), resp.Result, tc.wantCode, tc.want)
			case read < int64(len(body)):
				t.Errorf("%d KiB of a refused review were received: the API server, which sends the rest, may lose the answer", read>>10)
			}
		})
	}
}

// TestIntakeBoundsReviewsAtOnce: the reviews of one namespace, or of one user, take their share and no more. Large ones keep
// out no small one, and the answer to a refused one says to try again.
func TestIntakeBoundsReviewsAtOnce(t *testing.T) {
	const small, large = 2 << 10, 300 << 10
	sixteen := slices.Repeat([]int{small}, 16)
	for name, tc := range map[string]struct {
		sizes    []int // in flight
		flood    string
		size     int
		ns, user string
		want     bool
	}{
		"no other":                     {size: small, ns: "shop", user: "alice", want: true},
		"one large, one more":          {sizes: []int{large}, flood: "namespace", size: large, ns: "shop", user: "bob"},
		"one large, one small":         {sizes: []int{large}, flood: "namespace", size: small, ns: "shop", user: "mallory-0", want: true},
		"large elsewhere":              {sizes: []int{large}, flood: "namespace", size: large, ns: "bank", user: "bob", want: true},
		"16 small, one more":           {sizes: sixteen, flood: "namespace", size: small, ns: "shop", user: "bob"},
		"16 small, another namespace":  {sizes: sixteen, flood: "namespace", size: small, ns: "bank", user: "bob", want: true},
		"16 small, of the user":        {sizes: sixteen, flood: "user", size: small, ns: "bank", user: "mallory"},
		"16 small, of another user":    {sizes: sixteen, flood: "user", size: small, ns: "bank", user: "bob", want: true},
		"near the most, one more":      {sizes: []int{900 << 10}, flood: "namespace", size: large, ns: "bank", user: "bob", want: true},
		"the largest of another while": {sizes: []int{large}, flood: "namespace", size: 400 << 10, ns: "bank", user: "bob", want: true},
	} {
		t.Run(name, func(t *testing.T) {
			intake := admission.NewIntake()
			busy := &handler{entered: make(chan struct{}), leave: make(chan struct{})}
			hook := intake.Hook(&webhook.Admission{Handler: busy}, nil)
			var flood sync.WaitGroup
			for i, size := range tc.sizes {
				ns, user := "shop", fmt.Sprint("mallory-", i)
				if tc.flood == "user" {
					ns, user = fmt.Sprint("shop-", i), "mallory"
				}
				body := review(t, admissionv1.Create, ns, user, size)
				flood.Go(func() { post(t, hook, body, int64(len(body))) })
				<-busy.entered
			}
			h := &handler{}
			body := review(t, admissionv1.Create, tc.ns, tc.user, tc.size)
			resp, status, _ := post(t, intake.Hook(&webhook.Admission{Handler: h}, nil), body, int64(len(body)))
			if status != http.StatusOK || resp.Allowed != tc.want {
				t.Fatalf("status %d, answer %+v, want allowed %t", status, resp, tc.want)
			}
			if !tc.want && (resp.Result.Code != http.StatusTooManyRequests || resp.Result.Details.RetryAfterSeconds < 1 || h.calls.Load() > 0) {
				t.Errorf("%d calls, answer %+v", h.calls.Load(), resp.Result)
			}
			close(busy.leave)
			flood.Wait()
			if resp, _, _ = post(t, intake.Hook(&webhook.Admission{Handler: h}, nil), body, int64(len(body))); !resp.Allowed {
				t.Errorf("still refused when the others have their answers: %+v", resp.Result)
			}
		})
	}
}

// TestLargeStopsWaitForNoFilter: large creations, whose filters are compiled for seconds, do not keep out a stop of a capture with a large status.
func TestLargeStopsWaitForNoFilter(t *testing.T) {
	intake := admission.NewIntake()
	busy := &handler{entered: make(chan struct{}), leave: make(chan struct{})}
	var flood sync.WaitGroup
	for mallory, size := range map[string]int{"mallory-1": 900 << 10, "mallory-2": 300 << 10} {
		body := review(t, admissionv1.Create, mallory, mallory, size)
		flood.Go(func() { post(t, intake.Hook(&webhook.Admission{Handler: busy}, nil), body, int64(len(body))) })
		<-busy.entered
	}
	ask := func(op admissionv1.Operation, size int) bool {
		body := review(t, op, "shop", "bob", size)
		resp, _, _ := post(t, intake.Hook(&webhook.Admission{Handler: &handler{}}, nil), body, int64(len(body)))
		return resp.Allowed
	}
	if !ask(admissionv1.Update, 300<<10) || !ask(admissionv1.Update, 3<<20) {
		t.Error("a stop is refused")
	}
	if ask(admissionv1.Create, 300<<10) {
		t.Error("control: a creation fits, so nothing floods")
	}
	close(busy.leave)
	flood.Wait()
}

// TestPodIntakeOfANamesake: the Pods of a user with the namespace's name count for the namespace, too.
func TestPodIntakeOfANamesake(t *testing.T) {
	intake := admission.NewPodIntake()
	hook := func(h *handler) http.Handler { return intake.Hook(&webhook.Admission{Handler: h}, nil) }
	busy := &handler{entered: make(chan struct{}), leave: make(chan struct{})}
	body := review(t, admissionv1.Create, "alice", "alice", 2<<10)
	var flood sync.WaitGroup
	for range 16 {
		flood.Go(func() { post(t, hook(busy), body, int64(len(body))) })
		<-busy.entered
	}
	if resp, _, _ := post(t, hook(&handler{}), body, int64(len(body))); resp.Allowed {
		t.Error("a namespace got more than its 16 places")
	}
	close(busy.leave)
	flood.Wait()
}

// TestIntakeChecksNames: a review whose names are too long for a record, or which cannot be charged to a namespace and a user,
// is refused, and the handler never gets it.
func TestIntakeChecksNames(t *testing.T) {
	const parts = "the object's name, its namespace and what is known of the user have more than 64 KiB"
	for name, tc := range map[string]struct {
		change func(*admissionv1.AdmissionRequest)
		want   string // empty: it is allowed
	}{
		"the longest": {func(r *admissionv1.AdmissionRequest) {
			r.Name, r.Namespace, r.UserInfo.Username = strings.Repeat("n", 253), strings.Repeat("s", 63), strings.Repeat("u", 1024)
		}, ""},
		"no name yet":             {func(r *admissionv1.AdmissionRequest) { r.Name = "" }, ""},
		"a longer name":           {func(r *admissionv1.AdmissionRequest) { r.Name = strings.Repeat("n", 254) }, "the name of the object has 254 bytes, and the operator accepts at most 253"},
		"a longer namespace":      {func(r *admissionv1.AdmissionRequest) { r.Namespace = strings.Repeat("s", 64) }, "the name of the namespace has 64 bytes"},
		"a longer user":           {func(r *admissionv1.AdmissionRequest) { r.UserInfo.Username = strings.Repeat("u", 1025) }, "the name of the user has 1025 bytes"},
		"a name beyond the head":  {func(r *admissionv1.AdmissionRequest) { r.Name = strings.Repeat("n", 500_000) }, parts},
		"groups beyond the head":  {func(r *admissionv1.AdmissionRequest) { r.UserInfo.Groups = []string{strings.Repeat("g", 100_000)} }, parts},
		"no namespace":            {func(r *admissionv1.AdmissionRequest) { r.Namespace = "" }, "or some are missing"},
		"no user":                 {func(r *admissionv1.AdmissionRequest) { r.UserInfo.Username = "" }, "or some are missing"},
		"several bytes in a rune": {func(r *admissionv1.AdmissionRequest) { r.Name = strings.Repeat("é", 127) }, "the name of the object has 254 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			req := webhooktest.Request(t, admissionv1.Create, "PacketCapture", "shop", metav1.PartialObjectMetadata{}, nil)
			tc.change(&req.AdmissionRequest)
			body, err := json.Marshal(admissionv1.AdmissionReview{Request: &req.AdmissionRequest})
			if err != nil {
				t.Fatal(err)
			}
			h := &handler{}
			resp, status, _ := post(t, admission.NewIntake().Hook(&webhook.Admission{Handler: h}, nil), body, int64(len(body)))
			if status != http.StatusOK || resp.Allowed != (tc.want == "") || (h.calls.Load() == 1) != resp.Allowed {
				t.Fatalf("status %d, %d calls, answer %+v", status, h.calls.Load(), resp)
			}
			if tc.want != "" && (resp.Result.Code != http.StatusUnprocessableEntity || !strings.Contains(resp.Result.Message, tc.want)) {
				t.Errorf("answer %+v, want %q", resp.Result, tc.want)
			}
		})
	}
}

// TestIntakeOfClusterScopedKinds: their reviews have no namespace, and share the place of one: with each other, and with no
// namespace. A review of a namespaced kind still needs its namespace.
func TestIntakeOfClusterScopedKinds(t *testing.T) {
	intake := admission.NewIntake()
	send := func(hook func(http.Handler, admission.Unread) http.Handler, h *handler, ns, user string) *admissionv1.AdmissionResponse {
		req := webhooktest.Request(t, admissionv1.Create, "FluentPVC", ns, metav1.PartialObjectMetadata{}, nil)
		req.UserInfo.Username = user
		body, err := json.Marshal(admissionv1.AdmissionReview{Request: &req.AdmissionRequest})
		if err != nil {
			t.Fatal(err)
		}
		resp, _, _ := post(t, hook(&webhook.Admission{Handler: h}, nil), body, int64(len(body)))
		return resp
	}
	if resp := send(intake.Hook, &handler{}, "", "alice"); resp.Allowed || !strings.Contains(resp.Result.Message, "or some are missing") {
		t.Errorf("answer %+v to a namespaced kind without a namespace", resp)
	}
	if resp := send(intake.HookCluster, &handler{}, "", ""); resp.Allowed {
		t.Error("a review without a user is answered")
	}
	busy := &handler{entered: make(chan struct{}), leave: make(chan struct{})}
	var flood sync.WaitGroup
	for i := range 16 {
		// A namespace in such a review comes from no API server, and takes no place of another.
		flood.Go(func() { send(intake.HookCluster, busy, fmt.Sprint("made-up-", i), fmt.Sprint("mallory-", i)) })
		<-busy.entered
	}
	resp := send(intake.HookCluster, &handler{}, "", "alice")
	if resp.Allowed || resp.Result.Code != http.StatusTooManyRequests || !strings.Contains(resp.Result.Message, "has memory for, of this kind, of this user or of all: try again") {
		t.Errorf("answer %+v to the 17th", resp)
	}
	if resp := send(intake.Hook, &handler{}, "shop", "alice"); !resp.Allowed {
		t.Errorf("a namespaced kind has no place beside them: %+v", resp.Result)
	}
	close(busy.leave)
	flood.Wait()
	if resp := send(intake.HookCluster, &handler{}, "", "alice"); !resp.Allowed {
		t.Errorf("still refused: %+v", resp.Result)
	}
}

// TestIntakeLeavesPlaces: captures of many namespaces, whose filters wait for the compiler, leave places for those of another
// one. When they have taken all, stops, Traces and ResultAccesses still get theirs.
func TestIntakeLeavesPlaces(t *testing.T) {
	intake := admission.NewIntake()
	send := func(h *handler, op admissionv1.Operation, kind, ns string) bool {
		req := webhooktest.Request(t, op, kind, ns, metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadata{})
		req.UserInfo.Username = "system:serviceaccount:" + ns + ":sa"
		body, err := json.Marshal(admissionv1.AdmissionReview{Request: &req.AdmissionRequest})
		if err != nil {
			t.Fatal(err)
		}
		resp, _, _ := post(t, intake.Hook(&webhook.Admission{Handler: h}, nil), body, int64(len(body)))
		return resp.Allowed
	}
	busy := &handler{entered: make(chan struct{}), leave: make(chan struct{})}
	var flood sync.WaitGroup
	attack := func(ns string) (places int) {
		for {
			refused := make(chan struct{})
			flood.Go(func() {
				if !send(busy, admissionv1.Create, "PacketCapture", ns) {
					close(refused)
				}
			})
			select {
			case <-busy.entered:
				places++
			case <-refused:
				return places
			}
		}
	}
	var got []int
	for i := range 9 {
		if h := (&handler{}); i < 7 && !send(h, admissionv1.Create, "PacketCapture", "shop") {
			t.Errorf("a capture beside %d namespaces was refused", i)
		}
		got = append(got, attack(fmt.Sprint("evil-", i)))
	}
	if want := []int{16, 16, 16, 8, 4, 2, 1, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("the namespaces got %v places, want %v", got, want)
	}
	for _, tc := range []struct {
		op   admissionv1.Operation
		kind string
		want bool
	}{
		{admissionv1.Create, "PacketCapture", false},
		{admissionv1.Update, "PacketCapture", true},
		{admissionv1.Create, "Trace", true},
		{admissionv1.Create, "ResultAccess", true},
	} {
		if allowed := send(&handler{}, tc.op, tc.kind, "shop"); allowed != tc.want {
			t.Errorf("%s of a %s beside the flood: allowed %t, want %t", tc.op, tc.kind, allowed, tc.want)
		}
	}
	close(busy.leave)
	flood.Wait()
}

// TestIntakeOfStrangers: reviews that no API server sends are refused, and take no more memory.
func TestIntakeOfStrangers(t *testing.T) {
	whole := string(review(t, admissionv1.Create, "shop", "alice", 2<<10))
	for name, tc := range map[string]struct {
		body       string
		length     int64 // of the header; 0 is the true one
		wantStatus int
	}{
		"no JSON":                  {body: "hello", wantStatus: 400},
		"nothing":                  {body: "", wantStatus: 400},
		"a request of null":        {body: `{"request":null}`, wantStatus: 400},
		"a request of text":        {body: `{"request":"x"}`, wantStatus: 400},
		"broken off":               {body: whole[:len(whole)-10], wantStatus: 200}, // an answer that refuses
		"no length":                {body: whole, length: -1, wantStatus: 400},
		"a large head":             {body: `{"request":{"uid":"` + strings.Repeat("x", 1<<20) + `"}}`, wantStatus: 400},
		"the object before its ID": {body: `{"request":{"object":{"x":"` + strings.Repeat("x", 1<<20) + `"},"uid":"r-1"}}`, wantStatus: 400},
	} {
		t.Run(name, func(t *testing.T) {
			h := &handler{}
			length := tc.length
			if length == 0 {
				length = int64(len(tc.body))
			}
			resp, status, read := post(t, admission.NewIntake().Hook(&webhook.Admission{Handler: h}, nil), []byte(tc.body), length)
			if status != tc.wantStatus || h.calls.Load() > 0 || status == http.StatusOK && resp.Allowed || read > 128<<10 {
				t.Errorf("status %d after %d bytes, %d calls, answer %+v, want %d", status, read, h.calls.Load(), resp, tc.wantStatus)
			}
		})
	}
}

// TestMaxCreateBytes computes how large a spec the schemas allow. With all annotations and as many managed fields it fits.
func TestMaxCreateBytes(t *testing.T) {
	for _, plural := range []string{"packetcaptures", "traces", "resultaccesses"} {
		b, err := os.ReadFile(filepath.Join("../../config/crd/bases", sondev1.GroupVersion.Group+"_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(b, &crd); err != nil {
			t.Fatal(err)
		}
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		n := largest(t, plural, &spec)
		t.Logf("a spec of %s has at most %d KiB", plural, n>>10)
		if need := n + 256<<10 + 64<<10; need > admission.MaxCreateBytes {
			t.Errorf("%s need %d KiB, and only %d are read", plural, need>>10, admission.MaxCreateBytes>>10)
		}
	}
}

// largest returns the size of the longest JSON that a schema allows. The API server writes some characters as \u003c.
func largest(t *testing.T, path string, s *apiextensionsv1.JSONSchemaProps) int64 {
	t.Helper()
	const escaped, number = 6, 25
	switch {
	case s.Type == "object" && s.AdditionalProperties == nil:
		n := int64(2)
		for name := range s.Properties {
			property := s.Properties[name]
			n += int64(len(name)) + 4 + largest(t, path+"."+name, &property)
		}
		return n
	case s.Type == "array" && s.MaxItems != nil:
		return 2 + *s.MaxItems*(1+largest(t, path, s.Items.Schema))
	case len(s.Enum) > 0 || s.Type == "boolean" || s.Type == "integer" || s.Type == "number" || s.XIntOrString:
		return number
	case s.Type == "string" && s.MaxLength != nil:
		return 2 + escaped**s.MaxLength
	}
	t.Errorf("%s has no bound: %s", path, s.Type)
	return 0
}

// TestIntakeOnTheHeap compares what a large creation takes of the heap with the handler of controller-runtime, which was
// used before.
func TestIntakeOnTheHeap(t *testing.T) {
	labels := map[string]string{}
	for i := range 36_000 {
		labels["e2e/x"+strconv.Itoa(i)] = strings.Repeat("x", 63)
	}
	object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: labels}}
	req := webhooktest.Request(t, admissionv1.Create, "PacketCapture", "shop", object, nil)
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"}, Request: &req.AdmissionRequest,
	})
	if err != nil {
		t.Fatal(err)
	}
	hook := &webhook.Admission{Handler: &handler{}}
	taken := func(h http.Handler) uint64 {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h.ServeHTTP(httptest.NewRecorder(), r)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	was, now := taken(hook), taken(admission.NewIntake().Hook(hook, nil))
	t.Logf("a creation of %d KiB takes %d KiB of the heap, and took %d KiB", len(body)>>10, now>>10, was>>10)
	if now > 256<<10 || was < 8<<20 {
		t.Errorf("it takes %d KiB, and took %d KiB, want at most 256 KiB, and the control above 8 MiB", now>>10, was>>10)
	}
}

// TestIntakeOverHTTP: each answer about a large review reaches a client of HTTP/1.1, as an API server is, and the
// connection stays open.
func TestIntakeOverHTTP(t *testing.T) {
	server := httptest.NewUnstartedServer(admission.NewIntake().Hook(&webhook.Admission{Handler: &handler{}}, nil))
	var connections atomic.Int32
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	body := review(t, admissionv1.Create, "shop", "alice", 2900<<10)
	for range 10 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var got admissionv1.AdmissionReview
		err = json.NewDecoder(resp.Body).Decode(&got)
		resp.Body.Close()
		if err != nil || got.Response.Result.Code != http.StatusRequestEntityTooLarge {
			t.Fatalf("answer %+v, %v", got.Response, err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for 10 reviews, want 1", n)
	}
}
