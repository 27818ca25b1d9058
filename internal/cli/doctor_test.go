package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sonde-operator/sonde/internal/wire/nodereport"
)

// doctored simulates a cluster of two nodes. Its Pods end at once.
type doctored struct {
	mu   sync.Mutex
	pods map[string]string // node by name
	made int
	log  func(node string) string
}

func (d *doctored) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const pods = "/api/v1/namespaces/sonde-system/pods"
	name, _ := strings.CutPrefix(r.URL.Path, pods+"/")
	name, isLog := strings.CutSuffix(name, "/log")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/sonde-system/deployments/sonde-manager"), strings.HasSuffix(r.URL.Path, "/podless/deployments/sonde-manager"):
		fmt.Fprint(w, `{"kind":"Deployment","apiVersion":"apps/v1","spec":{"template":{"spec":{"containers":[{"name":"manager","image":"sonde:1"}]}}}}`)
	case strings.Contains(r.URL.Path, "/closed/"), strings.Contains(r.URL.Path, "/podless/pods"):
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"you cannot"}`)
	case r.URL.Path == "/api/v1/nodes":
		ready := `"metadata":{"name":"%s","labels":{"kubernetes.io/os":"linux"}},"status":{"conditions":[{"type":"Ready","status":"True"}]}`
		fmt.Fprintf(w, `{"kind":"NodeList","apiVersion":"v1","items":[{`+ready+`},{`+ready+`}]}`, "n1", "n2")
	case r.Method == http.MethodPost && r.URL.Path == pods:
		b, _ := io.ReadAll(r.Body)
		_, node, _ := strings.Cut(string(b), `"values":["`)
		d.made++
		name := fmt.Sprint("sonde-doctor-", d.made)
		d.pods[name] = node[:2]
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"sonde-system","uid":%q}}`, name, name)
	case isLog && d.pods[name] != "":
		fmt.Fprint(w, d.log(d.pods[name]))
	case r.Method == http.MethodDelete && d.pods[name] != "":
		delete(d.pods, name)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	case d.pods[name] != "":
		fmt.Fprintf(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"sonde-system"},"status":{"phase":"Succeeded"}}`, name)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`)
	}
}

func runDoctor(t *testing.T, d *doctored, args ...string) (code int, out, errOut string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	d.pods = map[string]string{}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	o, e := newOutput(), newOutput()
	code = Main(t.Context(), append([]string{"doctor", "--server", server.URL}, args...), Options{
		Streams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: o, ErrOut: e},
	})
	if len(d.pods) > 0 {
		t.Errorf("Pods are left: %v", d.pods)
	}
	return code, o.String(), e.String()
}

func nodeLog(node string) string {
	return "{\"time\":\"now\"}\n" + `{"v":1,"kernel":"6.12-of-` + node + `","checks":[{"name":"AF_PACKET","works":true},{"name":"capabilities","works":true}]}` + "\n"
}

func TestDoctor(t *testing.T) {
	unlike := func(node string) string {
		if node == "n2" {
			return strings.Replace(nodeLog(node), "true", "false", 1)
		}
		return nodeLog(node)
	}
	for name, tc := range map[string]struct {
		log        func(string) string
		wantSecond string // the heading of n2
		wantTraces int
	}{
		"equal nodes share their tables": {log: nodeLog, wantSecond: ", cgroup \nn2: Linux 6.12-of-n2, ", wantTraces: 1},
		"different nodes":                {log: unlike, wantSecond: "\n\nn2: Linux 6.12-of-n2, ", wantTraces: 2},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := runDoctor(t, &doctored{log: tc.log})
			if code != 0 || errOut != "" || !strings.HasPrefix(out, "n1: Linux 6.12-of-n1, ") || !strings.Contains(out, tc.wantSecond) {
				t.Errorf("code %d, standard error %q:\n%s", code, errOut, out)
			}
			if n := strings.Count(out, "\ntraces                no     BTF: it was not tried"); n != tc.wantTraces {
				t.Errorf("the traces are there %d times, want %d, in\n%s", n, tc.wantTraces, out)
			}
			if !strings.Contains(out, "\npacket captures       yes    engine auto takes AF_PACKET\n") {
				t.Errorf("no packet captures in\n%s", out)
			}
		})
	}
	code, out, _ := runDoctor(t, &doctored{log: nodeLog}, "-o", "json", "--all")
	var reports []nodereport.Report
	if err := json.Unmarshal([]byte(out), &reports); err != nil || code != 0 || len(reports) != 2 || reports[1].Node != "n2" || len(reports[0].Conclusions) == 0 {
		t.Errorf("code %d, %v:\n%s", code, err, out)
	}
}

func TestDoctorErrors(t *testing.T) {
	broken := func(node string) string {
		if node == "n1" {
			return "no report\n"
		}
		return nodeLog(node)
	}
	for name, tc := range map[string]struct {
		log     func(string) string
		args    []string
		want    string
		wantOut string
	}{
		"one of two nodes": {log: broken, want: "n1: node n1: the agent gave no report: no report", wantOut: "n2: Linux"},
		"no such node":     {log: nodeLog, args: []string{"n9"}, want: "there is no node n9"},
		"all and one":      {log: nodeLog, args: []string{"--all", "n1"}, want: "omit one of the two"},
		"another output":   {log: nodeLog, args: []string{"-o", "yaml"}, want: "--output yaml: write json, or omit the flag"},
		"no time":          {log: nodeLog, args: []string{"--timeout", "0s"}, want: "--timeout: write a time above zero"},
		"no right":         {log: nodeLog, args: []string{"--operator-namespace", "closed"}, want: "you cannot\nThe doctor runs a privileged Pod on each node"},
		"no Pod on either": {log: nodeLog, args: []string{"--operator-namespace", "podless"}, want: "n1, n2: create a Pod: you cannot The doctor"},
		"no operator":      {log: nodeLog, args: []string{"--operator-namespace", "other"}, want: "Sonde is not installed on this cluster, or in another namespace. Install it, choose another cluster with --context, or name the namespace with --operator-namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := runDoctor(t, &doctored{log: tc.log}, tc.args...)
			if code != 1 || !strings.Contains(errOut, tc.want) || !strings.Contains(out, tc.wantOut) {
				t.Errorf("code %d, %q, want %q; output\n%s", code, errOut, tc.want, out)
			}
		})
	}
}
