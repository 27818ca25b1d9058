package wiring_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/audit"
	"github.com/sonde-operator/sonde/internal/operator/wiring"
	"github.com/sonde-operator/sonde/webhooks/admission"
	"github.com/sonde-operator/sonde/webhooks/capture"
	"github.com/sonde-operator/sonde/webhooks/gate"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// flagged are the options of a manager with these flags.
func flagged(t *testing.T, to *bytes.Buffer, args ...string) zap.Options {
	t.Helper()
	o := zap.Options{DestWriter: to}
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	o.BindFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestLoggerKeepsEveryAuditRecord: many equal records hide neither each other nor the one that follows.
func TestLoggerKeepsEveryAuditRecord(t *testing.T) {
	var out bytes.Buffer
	log := wiring.Logger(flagged(t, &out))
	for range 1000 {
		log.Info("Served result", audit.Key, audit.ResultServed, audit.Requester, "mallory", "bytes", 1)
	}
	log.Info("Served result", audit.Key, audit.ResultServed, audit.Requester, "mallory", "bytes", 500_000_000)
	if got := strings.Count(out.String(), "\n"); got != 1001 {
		t.Errorf("%d lines of 1001 records", got)
	}
	if !strings.Contains(out.String(), `"bytes":500000000`) {
		t.Error("the large download is missing")
	}
}

var stamps = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T[^"\s]*|wiring(_test)?[./][^\s"\\]*|0x[0-9a-f]+`)

// TestLoggerWritesNoStackTraces: a failed request takes one short line.
func TestLoggerWritesNoStackTraces(t *testing.T) {
	var out bytes.Buffer
	wiring.Logger(flagged(t, &out)).Error(errors.New("no answer"), "Failing to decide on request")
	if got := out.Len(); got == 0 || got > 200 {
		t.Errorf("%d bytes for an error: %s", got, &out)
	}
}

// TestLoggerWritesAsControllerRuntime: only the sampling and the default of stack traces differ, not the format or the levels.
func TestLoggerWritesAsControllerRuntime(t *testing.T) {
	for _, args := range [][]string{{"--zap-stacktrace-level=panic"}, {"--zap-stacktrace-level=error"}, {"--zap-log-level=debug", "--zap-stacktrace-level=error"}, {"--zap-log-level=3", "--zap-stacktrace-level=panic"}, {"--zap-devel"}, {"--zap-encoder=console", "--zap-stacktrace-level=error"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			written := func(construct func(zap.Options) logr.Logger) string {
				var out bytes.Buffer
				log := construct(flagged(t, &out, args...)).WithName("results")
				log.Info("Serving", "a", 1)
				log.V(1).Info("Serving more")
				log.V(3).Info("Serving most")
				log.Error(nil, "Failing", "b", 2)
				if args[0] != "--zap-devel" { // there it panics
					log.Info("Odd", "key") //nolint:loggercheck // how an odd number is written
				}
				return stamps.ReplaceAllString(out.String(), "-")
			}
			want := written(func(o zap.Options) logr.Logger { return zap.New(zap.UseFlagOptions(&o)) })
			if diff := cmp.Diff(want, written(wiring.Logger)); diff != "" {
				t.Errorf("(-controller-runtime +ours):\n%s", diff)
			}
		})
	}
}

// managersLog returns what controller-runtime's logger writes, which is set once in a process.
var managersLog = sync.OnceValue(func() *bytes.Buffer {
	var out bytes.Buffer
	ctrl.SetLogger(wiring.Logger(zap.Options{DestWriter: &out}))
	return &out
})

// TestRecordsOfReviewsAreShort: the API server calls webhooks before it validates an object's name, so a refused review may have
// a name of a megabyte. Its record has a part of it.
func TestRecordsOfReviewsAreShort(t *testing.T) {
	const most = 6 << 10
	out := managersLog()
	live := webhooktest.Reader(t, webhooktest.Objects()...)
	captures := &capture.Handler{
		Quota: &capture.Quota{}, Kind: kind.PacketCapture, Checks: &capture.PacketCaptureChecks{}, Live: live, Cache: live,
		Reviews: webhooktest.May(), Key: webhooktest.Key, OperatorNamespace: webhooktest.OperatorNamespace, Clock: webhooktest.Clock(),
	}
	pods := &gate.Handler{OperatorNamespace: webhooktest.OperatorNamespace, Required: true}
	for name, hook := range map[string]func(*webhook.Admission) http.Handler{
		"captures": func(w *webhook.Admission) http.Handler {
			w.Handler = captures
			return admission.NewIntake().Hook(w, nil)
		},
		"Pods": func(w *webhook.Admission) http.Handler {
			w.Handler = pods
			return admission.NewPodIntake().Hook(w, pods.Unread)
		},
	} {
		for _, size := range []int{254, 60_000, 500_000} {
			out.Reset()
			req := webhooktest.Request(t, admissionv1.Create, "PacketCapture", "shop", map[string]any{}, nil)
			req.Name = strings.Repeat("a", size)
			body, err := json.Marshal(admissionv1.AdmissionReview{Request: &req.AdmissionRequest})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			hook(&webhook.Admission{}).ServeHTTP(w, r)
			if out.Len() == 0 || out.Len() > most || !strings.Contains(w.Body.String(), `"allowed":false`) {
				t.Errorf("%s: a name of %d bytes is logged in %d, want 1 to %d: %.300s; answer %.300s", name, size, out.Len(), most, out, w.Body)
			}
		}
	}
}

// TestCallersForgeNoRecords: a Pod that knows the path of a webhook can send reviews in any user's name. They leave no record of
// a stop. Those of requests are marked, and few of a flood.
func TestCallersForgeNoRecords(t *testing.T) {
	const flood, most = 1000, 150
	out := managersLog()
	live := webhooktest.Reader(t, webhooktest.Objects()...)
	hook := admission.NewIntake().Hook(&webhook.Admission{Handler: &capture.Handler{
		Quota: &capture.Quota{}, Kind: kind.Trace, Checks: capture.TraceChecks{OperatorNamespace: webhooktest.OperatorNamespace}, Live: live, Cache: live,
		Reviews: webhooktest.MayTrace("pods/shop"), Key: webhooktest.Key, OperatorNamespace: webhooktest.OperatorNamespace, Clock: webhooktest.Clock(),
	}}, nil)
	call := func(op admissionv1.Operation, object, old any) string {
		req := webhooktest.Request(t, op, "Trace", "shop", object, old)
		req.UserInfo.Username = "cluster-admin@example.com"
		body, err := json.Marshal(admissionv1.AdmissionReview{Request: &req.AdmissionRequest})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		hook.ServeHTTP(w, r)
		return w.Body.String()
	}
	object := func(spec map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "payroll", "uid": "u-1"}, "spec": spec}
	}
	valid := map[string]any{"targetDeployment": "web", "duration": "30", "retainFor": "1h", "maxBytes": 1 << 20}

	out.Reset()
	if answer := call(admissionv1.Update, object(map[string]any{"stop": true}), object(nil)); !strings.Contains(answer, `"allowed":true`) || out.Len() > 0 {
		t.Errorf("a stop that was perhaps never stored is recorded: %s; answer %s", out, answer)
	}
	if answer := call(admissionv1.Create, object(valid), nil); !strings.Contains(answer, `"allowed":true`) {
		t.Errorf("answer %s, want it admitted", answer)
	}
	for range flood {
		call(admissionv1.Create, object(nil), nil)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) > most {
		t.Errorf("%d lines of %d calls, want at most %d", len(lines), flood, most)
	}
	for _, action := range []string{audit.RequestAdmitted, audit.RequestRefused} {
		if !strings.Contains(out.String(), action) {
			t.Errorf("no record %s", action)
		}
	}
	for _, l := range lines {
		if !strings.Contains(l, `"claimed":true`) {
			t.Errorf("not marked as a caller's claim: %s", l)
		}
	}
}
