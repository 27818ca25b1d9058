package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// volumes simulates a cluster with a binding and the claim of a lost one in namespace shop. The user may not read the
// operator's ServiceAccount.
type volumes struct {
	mu      sync.Mutex
	allowed bool
	writes  []string
}

func (v *volumes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	const (
		bindings = "/apis/monitoring.openshift.tpg/v1alpha1/namespaces/shop/fluentpvcbindings"
		claims   = "/api/v1/namespaces/shop/persistentvolumeclaims"
		roles    = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings"
		binding  = `{"kind":"FluentPVCBinding","apiVersion":"monitoring.openshift.tpg/v1alpha1","metadata":{"name":"logs-1","namespace":"shop","uid":"b-1"},"spec":{"pod":{"name":"web-1"}},"status":{"phase":"FinalizerJobFailed"}}`
		claim    = `{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"lost-1","namespace":"shop","uid":"c-1","labels":{"monitoring.openshift.tpg/kind":"FluentPVCBinding"}}}`
		role     = `{"kind":"RoleBinding","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"sonde-fluentpvc","namespace":"shop"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"sonde-fluentpvc"},"subjects":[{"kind":"ServiceAccount","name":"sonde-manager","namespace":"sonde-system"}]}`
		success  = `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	)
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodGet {
		v.writes = append(v.writes, r.Method+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]+" "+withoutTimes(string(body)))
	}
	w.Header().Set("Content-Type", "application/json")
	switch r.Method + " " + r.URL.Path {
	case "GET " + bindings + "/logs-1", "PATCH " + bindings + "/logs-1":
		fmt.Fprint(w, binding)
	case "GET " + bindings:
		fmt.Fprint(w, `{"kind":"FluentPVCBindingList","apiVersion":"monitoring.openshift.tpg/v1alpha1","items":[`+binding+`]}`)
	case "GET " + claims + "/lost-1", "PATCH " + claims + "/lost-1":
		fmt.Fprint(w, claim)
	case "DELETE " + claims + "/lost-1":
		fmt.Fprint(w, success)
	case "POST " + roles:
		v.allowed = true
		fmt.Fprint(w, role)
	case "GET " + roles + "/sonde-fluentpvc", "DELETE " + roles + "/sonde-fluentpvc":
		if !v.allowed {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`)
			return
		}
		v.allowed = r.Method == http.MethodGet
		fmt.Fprint(w, role)
	case "GET /api/v1/namespaces/sonde-system/serviceaccounts/sonde-manager":
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"you cannot"}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"no %s","details":{"name":"x","group":"monitoring.openshift.tpg","kind":"fluentpvcbindings"}}`, r.URL.Path)
	}
}

// withoutTimes replaces the values of annotations of a patch.
func withoutTimes(body string) string {
	before, rest, found := strings.Cut(body, `":"20`)
	if !found {
		return ""
	}
	_, after, _ := strings.Cut(rest, `"`)
	return before + `":"TIME"` + after
}

func TestFluentPVC(t *testing.T) {
	retry := `PATCH logs-1 {"metadata":{"annotations":{"monitoring.openshift.tpg/retry":"TIME"},"uid":"b-1"}}`
	discard := `PATCH logs-1 {"metadata":{"annotations":{"monitoring.openshift.tpg/discard":"TIME"},"uid":"b-1"}}`
	const question = "Delete this data in namespace shop? [y/N] "
	const loss = "PersistentVolumeClaim logs-1 of Pod web-1: FinalizerJobFailed, its data is not processed\n"
	for name, tc := range map[string]struct {
		args       []string
		allowed    bool
		input      string
		wantCode   int
		wantWrites []string
		wantOut    string
		wantErrOut []string
	}{
		"allow": {
			args: []string{"allow"}, wantWrites: []string{"POST rolebindings "}, wantOut: "rolebinding.rbac.authorization.k8s.io/sonde-fluentpvc created\n",
			wantErrOut: []string{"Jobs in namespace shop. To undo this:\n  kubectl sonde fluentpvc disallow -n shop\n"},
		},
		"allow again": {args: []string{"allow"}, allowed: true, wantOut: "rolebinding.rbac.authorization.k8s.io/sonde-fluentpvc unchanged\n"},
		"disallow": {
			args: []string{"disallow"}, allowed: true, wantWrites: []string{"DELETE sonde-fluentpvc "}, wantOut: "rolebinding.rbac.authorization.k8s.io/sonde-fluentpvc deleted\n",
			wantErrOut: []string{"Volumes left in namespace shop: 1.", "kubectl sonde fluentpvc allow -n shop\n"},
		},
		"disallow again": {
			args: []string{"disallow"}, wantWrites: []string{"DELETE sonde-fluentpvc "}, wantOut: "rolebinding.rbac.authorization.k8s.io/sonde-fluentpvc not found\n",
		},
		"retry":                       {args: []string{"retry", "logs-1"}, wantWrites: []string{retry}, wantOut: "fluentpvcbinding.monitoring.openshift.tpg/logs-1: retry requested\n"},
		"retry by full name":          {args: []string{"retry", "fluentpvcbinding.monitoring.openshift.tpg/logs-1"}, wantWrites: []string{retry}, wantOut: "fluentpvcbinding.monitoring.openshift.tpg/logs-1: retry requested\n"},
		"retry none":                  {args: []string{"retry"}, wantCode: 1, wantErrOut: []string{"needs the NAME of a FluentPVCBinding"}},
		"retry an unknown":            {args: []string{"retry", "logs-1", "logs-2"}, wantCode: 1, wantErrOut: []string{"Error from server (NotFound): no "}},
		"discard":                     {args: []string{"discard", "logs-1"}, input: "y\n", wantWrites: []string{discard}, wantOut: "fluentpvcbinding.monitoring.openshift.tpg/logs-1: discard requested\n", wantErrOut: []string{loss + question}},
		"discard by the claim's name": {args: []string{"discard", "persistentvolumeclaim/logs-1", "-y"}, wantWrites: []string{discard}, wantOut: "fluentpvcbinding.monitoring.openshift.tpg/logs-1: discard requested\n"},
		"discard, refused":            {args: []string{"discard", "logs-1"}, input: "n\n", wantCode: 1, wantErrOut: []string{question, "nothing is deleted"}},
		"discard, no input":           {args: []string{"discard", "logs-1"}, wantCode: 1, wantErrOut: []string{question + "\nerror: nothing is deleted: answer y, or add --yes"}},
		"discard with --yes":          {args: []string{"discard", "logs-1", "--yes"}, wantWrites: []string{discard}, wantOut: "fluentpvcbinding.monitoring.openshift.tpg/logs-1: discard requested\n", wantErrOut: []string{loss}},
		"discard a lost one": {
			args: []string{"discard", "lost-1", "-y"}, wantOut: "persistentvolumeclaim/lost-1: discard requested\n",
			wantWrites: []string{`PATCH lost-1 {"metadata":{"annotations":{"monitoring.openshift.tpg/discard":"TIME"},"uid":"c-1"}}`, "DELETE lost-1 "},
			wantErrOut: []string{"nothing will process its data"},
		},
		"no such command": {args: []string{"alow"}, wantCode: 1, wantErrOut: []string{`unknown command "alow"`}},
		"no command":      {wantOut: "A FluentPVC gives"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
			v := &volumes{allowed: tc.allowed}
			server := httptest.NewServer(v)
			defer server.Close()
			out, errOut := newOutput(), newOutput()
			code := Main(t.Context(), append(append([]string{"fluentpvc"}, tc.args...), "-n", "shop", "--server", server.URL), Options{
				Streams: genericiooptions.IOStreams{In: strings.NewReader(tc.input), Out: out, ErrOut: errOut},
			})
			if code != tc.wantCode || !strings.HasPrefix(out.String(), tc.wantOut) || tc.wantOut == "" && out.String() != "" {
				t.Errorf("code %d, want %d; standard output %q, want %q; standard error:\n%s", code, tc.wantCode, out, tc.wantOut, errOut)
			}
			for _, want := range tc.wantErrOut {
				if !strings.Contains(errOut.String(), want) {
					t.Errorf("no %q in\n%s", want, errOut)
				}
			}
			if diff := cmp.Diff(tc.wantWrites, slices.Clone(v.writes)); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}
