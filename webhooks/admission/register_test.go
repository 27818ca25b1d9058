package admission_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
	"github.com/sonde-operator/sonde/webhooks/admission"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// recorder is a server that records the paths that are registered.
type recorder struct {
	webhook.Server
	paths []string
}

func (s *recorder) Register(path string, hook http.Handler) {
	s.paths = append(s.paths, path)
	s.Server.Register(path, hook)
}

func TestRegister(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(webhooktest.Now)
	rotating := webhookpath.New(webhooktest.Key, now)
	secret, _ := rotating.Current()
	mux := http.NewServeMux()
	server := &recorder{Server: webhook.NewServer(webhook.Options{WebhookMux: mux})}
	for _, path := range []string{webhookpath.PacketCapture, webhookpath.ResultAccess} {
		admission.Register(server, path, rotating, &webhook.Admission{})
	}
	for name, tc := range map[string]struct {
		path string
		want int
	}{
		"a capture's":      {webhookpath.PacketCapture + secret, http.StatusOK}, // an AdmissionReview that says that the body is empty
		"an access's":      {webhookpath.ResultAccess + secret, http.StatusOK},
		"no secret":        {webhookpath.PacketCapture + "/", http.StatusNotFound},
		"another":          {webhookpath.PacketCapture + "/" + strings.Repeat("0", len(secret)-1), http.StatusNotFound},
		"a part of it":     {webhookpath.PacketCapture + secret[:len(secret)-1], http.StatusNotFound},
		"more than it":     {webhookpath.PacketCapture + secret + "0", http.StatusNotFound},
		"something below":  {webhookpath.PacketCapture + secret + "/x", http.StatusNotFound},
		"the secret alone": {secret, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, tc.path, http.NoBody))
			if w.Code != tc.want || (tc.want == http.StatusOK) != strings.Contains(w.Body.String(), "request body is empty") {
				t.Errorf("status %d, body %q, want %d", w.Code, w.Body, tc.want)
			}
		})
	}
	t.Run("a path that has leaked", func(t *testing.T) {
		now.SetTime(webhooktest.Now.Add(webhookpath.Period + webhookpath.Overlap))
		defer now.SetTime(webhooktest.Now)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, webhookpath.PacketCapture+secret, http.NoBody))
		if w.Code != http.StatusNotFound {
			t.Errorf("status %d after its period, want 404", w.Code)
		}
	})
	t.Run("without the slash", func(t *testing.T) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, webhookpath.PacketCapture, http.NoBody))
		if w.Code == http.StatusOK || strings.Contains(w.Header().Get("Location"), secret) {
			t.Errorf("status %d, headers %v", w.Code, w.Header())
		}
	})
	// The server logs the paths that are registered.
	hidden := strings.Trim(secret, "/")
	if all := strings.Join(server.paths, " "); all != webhookpath.PacketCapture+"/ "+webhookpath.ResultAccess+"/" {
		t.Errorf("registered: %s", all)
	}
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	hooks := 0
	for _, f := range families {
		if strings.Contains(f.String(), hidden) {
			t.Errorf("metric %s holds the secret: %s", f.GetName(), f)
		}
		if strings.Contains(f.String(), webhookpath.PacketCapture+"/") {
			hooks++
		}
	}
	if hooks == 0 {
		t.Error("the webhook has no metric")
	}
}
