package gather

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// Secrets in the places where a cluster holds or quotes them.
const (
	path  = "00112233445566778899aabbccddeeff"
	stamp = "5ta3p5ta3p"
	hash  = "4a544a54"
	key   = "MIGHAgEAMBMGByqGSM49"
	env   = "hunter2"
	value = "swordfish"
	jwt   = "eyJhbGciOiJSUzI1NiIs.eyJpc3MiOiJrdWJlcm5ldGVz.c2lnbmF0dXJlLi4u"
)

// list is the beginning of a list of any kind.
const list = `{"kind":"List","apiVersion":"v1","items"`

var answers = map[string]string{
	"/version": `{"gitVersion":"v1.36.3"}`,
	"/apis/monitoring.openshift.tpg/v1alpha1/packetcaptures": `{"items":[{"kind":"PacketCapture","metadata":{"name":"web","namespace":"shop","managedFields":[{}],"annotations":{
		"monitoring.openshift.tpg/stamp":"` + stamp + `","monitoring.openshift.tpg/requester":"` + stamp + `","mine":"kept","kubectl.kubernetes.io/last-applied-configuration":"{\"data\":\"` + stamp + `\"}"}},"spec":{"filter":"udp"}}]}`,
	"/apis/monitoring.openshift.tpg/v1alpha1/traces": `{"items":[{"kind":"Trace","metadata":{"name":"web","namespace":"shop","annotations":{
		"monitoring.openshift.tpg/stamp":"` + stamp + `","mine":"kept"}},"spec":{"events":["io"]}}]}`,
	"/apis/monitoring.openshift.tpg/v1alpha1/resultaccesses": `{"items":[{"kind":"ResultAccess","metadata":{"name":"a"},"spec":{"tokenHash":"` + hash + `"}}]}`,
	"/apis/monitoring.openshift.tpg/v1alpha1/fluentpvcs": `{"items":[{"kind":"FluentPVC","metadata":{"name":"logs"},"spec":{"commonEnvs":[{"name":"MOUNT","value":"` + env + `"}],
		"sidecarContainerTemplate":{"name":"agent","env":[{"name":"A","value":"` + env + `"},{"name":"B","valueFrom":{"secretKeyRef":{"name":"referenced","key":"k"}}}]}}}]}`,
	"/apis/monitoring.openshift.tpg/v1alpha1/fluentpvcbindings": `{"items":[{"kind":"FluentPVCBinding","metadata":{"name":"logs-1","namespace":"shop"},"status":{"phase":"Ready"},
		"spec":{"template":{"pvcFinalizerJobSpecTemplate":{"template":{"spec":{"initContainers":[{"env":[{"name":"A","value":"` + env + `"}]}],"containers":[{"image":"kept","env":[{"name":"A","value":"` + env + `"}]}]}}}}}}]}`,
	"/apis/monitoring.openshift.tpg/v1alpha1/collectors": `{"items":[{"kind":"Collector","metadata":{"name":"acme","namespace":"acme","annotations":{"kapp.k14s.io/original":"{\"password\":\"` + value + `\"}"}},"spec":{"tenant":{"reference":"acme"},
		"collector":{"name":"kept","configuration":"` + value + `"},"values":{"otlp":{"headers":{"authorization":"` + value + `"}},"users":[{"password":"` + value + `"}],"pin":20071969}}}]}`,
	"/apis/monitoring.openshift.tpg/v1alpha1/interceptrequests": `{"items":[{"kind":"InterceptRequest","metadata":{"name":"web","namespace":"shop"},
		"spec":{"match":{"headers":[{"name":"cookie","exact":"` + value + `"},{"name":"x-user","prefix":"` + value + `"}]}}}]}`,
	"/apis/apps/v1/namespaces/sonde-system/deployments": `{"items":[{"kind":"Deployment","metadata":{"name":"sonde-manager"},"spec":{"template":{"spec":{"containers":[
		{"name":"manager","env":[{"name":"HTTPS_PROXY","value":"http://operator:p@` + value + `@proxy.example.com:3128"},{"name":"HTTP_PROXY","value":"http://` + value + `@proxy.example.com:3129"},{"name":"ALL_PROXY","value":"http://ann@example.com:` + value + `@proxy.example.com:3130"},{"name":"NO_PROXY","value":"kept.example.com"}]}]}}}}]}`,
	"/apis/rbac.authorization.k8s.io/v1/rolebindings": `{"items":[{"kind":"RoleBinding","metadata":{"name":"sonde-fluentpvc","namespace":"shop"}},{"kind":"RoleBinding","metadata":{"name":"not wanted"}}]}`,
	"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": `{"items":[
		{"kind":"MutatingWebhookConfiguration","metadata":{"name":"another"}},
		{"kind":"MutatingWebhookConfiguration","metadata":{"name":"sonde"},"webhooks":[{"name":"w","clientConfig":{"service":{"name":"sonde-webhook","path":"/mutate-packetcapture/` + path + `"}}}]},
		{"kind":"MutatingWebhookConfiguration","metadata":{"name":"sonde-pods"},"webhooks":[
			{"name":"gate","clientConfig":{"service":{"name":"sonde-webhook","path":"/mutate-v1-pod-gate/` + path + `"}}},
			{"name":"trace-required","clientConfig":{"service":{"name":"sonde-webhook","path":"/mutate-v1-pod-gate-required/` + path + `"}}}]}]}`,
	"/api/v1/namespaces/sonde-system/pods": `{"items":[{"kind":"Pod","metadata":{"name":"sonde-manager-1"},"spec":{"containers":[{"name":"manager"}]}},
		{"kind":"Pod","metadata":{"name":"trace-web-1"},"spec":{"containers":[{"name":"probe"},{"name":"keeper"}]}}]}`,
	"/api/v1/namespaces/sonde-system/configmaps": `{"items":[{"kind":"ConfigMap","metadata":{"name":"sonde-config"},"data":{"paused":"true"}},{"kind":"ConfigMap","metadata":{"name":"shop-web"},"data":{"program":"not wanted"}}]}`,
	"/apis/events.k8s.io/v1/namespaces/sonde-system/events": `{"items":[{"kind":"Event","metadata":{"name":"e"},
		"note":"failed calling webhook: Post https://sonde-webhook.sonde-system.svc:443/mutate-packetcapture/` + path + `?timeout=10s: refused"}]}`,
	"/apis/scheduling.k8s.io/v1/priorityclasses":       `{"items":[{"kind":"PriorityClass","metadata":{"name":"sonde-probe"},"value":1000},{"kind":"PriorityClass","metadata":{"name":"not wanted"}}]}`,
	"/apis/console.openshift.io/v1/consoleyamlsamples": `{"items":[{"kind":"ConsoleYAMLSample","metadata":{"name":"sonde"},"spec":{"title":"An example"}}]}`,
	"/api/v1/nodes": `{"items":[{"kind":"Node","metadata":{"name":"n1"},"status":{"nodeInfo":{"kernelVersion":"6.12"},"images":[{"names":["not wanted"]}]}}]}`,
	"/api/v1/namespaces/sonde-system/pods/sonde-manager-1/log": "Registering webhook /mutate-packetcapture/" + path + "\nAuthorization: Bearer " + jwt + "\n-----BEGIN PRIVATE KEY-----\n" + key + "\n-----END PRIVATE KEY-----\nServing results\n",
	"/api/v1/namespaces/sonde-system/pods/trace-web-1/log":     `{"msg":"Opened the gate"}` + "\n",
}

// server simulates an API server that refuses access to roles and SecurityContextConstraints. It has ConsoleYAMLSamples
// and PriorityClasses, but no ConsoleCLIDownloads and no kinds of the Prometheus operator.
func server(t *testing.T) (config *rest.Config, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.Path)
		body, ok := answers[r.URL.Path]
		switch {
		case strings.HasSuffix(r.URL.Path, "/log") && r.URL.Query().Get("previous") == "true":
			http.Error(w, "no previous container", http.StatusBadRequest)
		case strings.HasSuffix(r.URL.Path, "/log"):
			_, _ = io.WriteString(w, body)
		case ok:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.Replace(body, `{"items"`, list, 1))
		case strings.Contains(r.URL.Path, "/securitycontextconstraints"), strings.HasSuffix(r.URL.Path, "/roles"):
			http.Error(w, "no", http.StatusForbidden)
		case strings.Contains(r.URL.Path, "/monitoring.coreos.com/"), strings.HasSuffix(r.URL.Path, "/consoleclidownloads"):
			http.NotFound(w, r)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, list+`:[]}`)
		}
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, QPS: -1}, asked
}

func run(t *testing.T, to string) (failures []string, asked []string) {
	t.Helper()
	config, paths := server(t)
	sink, err := NewSink(to, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(config, "sonde-system", sink)
	if err != nil {
		t.Fatal(err)
	}
	if failures, err = g.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	return failures, *paths
}

func TestNothingSecretIsCollected(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	_, asked := run(t, dir)
	for _, p := range asked {
		if strings.Contains(p, "secrets") {
			t.Errorf("asked for %s", p)
		}
	}
	all := files(t, dir)
	for name, content := range all {
		for _, secret := range []string{path, stamp, hash, key, jwt, env, value, "20071969", "not wanted", "managedFields"} {
			if strings.Contains(content, secret) {
				t.Errorf("%q in %s:\n%s", secret, name, content)
			}
		}
	}
	for _, want := range []string{"path: /mutate-v1-pod-gate/REDACTED", "path: /mutate-v1-pod-gate-required/REDACTED"} {
		if got := all["objects/mutatingwebhookconfigurations-sonde.yaml"]; !strings.Contains(got, want) {
			t.Errorf("no %q in the gates' configuration:\n%s", want, got)
		}
	}
	for name, want := range map[string]string{
		"objects/packetcaptures.yaml":                      "mine: kept",
		"objects/traces.yaml":                              "mine: kept",
		"objects/resultaccesses.yaml":                      "tokenHash: REDACTED",
		"objects/fluentpvcs.yaml":                          "name: referenced",
		"objects/fluentpvcbindings.yaml":                   "image: kept",
		"objects/collectors.yaml":                          "authorization: REDACTED",
		"objects/interceptrequests.yaml":                   "name: x-user",
		"objects/deployments.yaml":                         "value: http://REDACTED@proxy.example.com:3129",
		"objects/rolebindings-sonde-fluentpvc.yaml":        "namespace: shop",
		"objects/mutatingwebhookconfigurations-sonde.yaml": "path: /mutate-packetcapture/REDACTED",
		"objects/configmaps-sonde-config.yaml":             "paused:",
		"objects/events.yaml":                              "refused",
		"objects/nodes.yaml":                               "kernelVersion",
		"logs/sonde-manager-1/manager.log":                 "Serving results",
		"logs/trace-web-1/probe.log":                       "Opened the gate",
		"logs/trace-web-1/keeper.log":                      "Opened the gate",
		"objects/priorityclasses-sonde.yaml":               "value: 1000",
		"objects/consoleyamlsamples-sonde.yaml":            "An example",
		"server-version.json":                              "v1.36.3",
		"errors.txt":                                       "securitycontextconstraints",
	} {
		if !strings.Contains(all[name], want) {
			t.Errorf("no %q in %s:\n%s", want, name, all[name])
		}
	}
}

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	failures, _ := run(t, filepath.Join(t.TempDir(), "out"))
	if len(failures) != 2 || !strings.HasPrefix(failures[0], "roles: ") || !strings.HasPrefix(failures[1], "securitycontextconstraints: ") {
		t.Errorf("failures %q, want roles and securitycontextconstraints", failures)
	}
}

// Only an optional API may be missing without a failure.
func TestMissingAPIs(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" && r.URL.Path != "/api/v1/nodes" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, list+`:[]}`)
	}))
	defer s.Close()
	g, err := New(&rest.Config{Host: s.URL, QPS: -1}, "sonde-system", directory(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	failures, err := g.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	silent := []string{"nodes", "securitycontextconstraints", "servicemonitors", "prometheusrules", "consoleyamlsamples", "consoleclidownloads"}
	var got, want []string
	for _, f := range failures {
		resource, _, _ := strings.Cut(f, ":")
		got = append(got, resource)
	}
	for _, k := range kinds {
		if !slices.Contains(silent, k.Resource) {
			want = append(want, k.Resource)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

// TestStrangersCannotRedact: a stranger may write the first and the last line of a key into a log. What is between them stays.
func TestStrangersCannotRedact(t *testing.T) {
	const key = "-----BEGIN EC PRIVATE KEY-----\\nMHcCAQEE+/=\\n-----END EC PRIVATE KEY-----"
	const log = `{"msg":"Refusing","PacketCapture":"\"-----BEGIN PRIVATE KEY-----\"/x"}` + "\n" + `{"msg":"Serving a result"}` + "\n" +
		`{"msg":"Refusing","PacketCapture":"\"-----END PRIVATE KEY-----\"/x"}` + "\n"
	if got := string(text([]byte(log + `{"pem":"` + key + `"}`))); got != log+`{"pem":"`+redacted+`"}` {
		t.Errorf("the log is\n%s", got)
	}
	quoted := strings.ReplaceAll(key, `\n`, `\\n`)
	if got := string(text([]byte(`{"error":"\"` + quoted + `\""}`))); got != `{"error":"\"`+redacted+`\""}` {
		t.Errorf("a key that is quoted twice is left: %s", got)
	}
	for _, pem := range []string{
		"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0A1B\n\nMIIB\n-----END RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\r\n  MIIB\r\n-----END PRIVATE KEY-----",
	} {
		if got := string(text([]byte(pem))); got != redacted {
			t.Errorf("%q is left of a key", got)
		}
	}
}

// A log is redacted before it is truncated: here its last maxLog bytes begin in the middle of a token.
func TestTruncatedLogHasNoSecret(t *testing.T) {
	end := strings.Repeat("x", maxLog-len(cutNote)-len(jwt)/2)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "Bearer "+jwt+" "+end)
	}))
	defer s.Close()
	dir := t.TempDir()
	g, err := New(&rest.Config{Host: s.URL, QPS: -1}, "sonde-system", directory(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.log(t.Context(), "sonde-manager-1", "manager", false); err != nil {
		t.Fatal(err)
	}
	log := files(t, dir)["logs/sonde-manager-1/manager.log"]
	if len(log) > maxLog || !strings.HasPrefix(log, cutNote) || !strings.HasSuffix(log, end) {
		t.Errorf("%d bytes, want at most %d, and the log's end", len(log), maxLog)
	}
	if cut := strings.TrimSuffix(log, end); strings.Contains(cut, jwt[len(jwt)-8:]) {
		t.Errorf("%q is left of a token", cut)
	}
}

func TestNothingCanBeRead(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			http.Error(w, "no", http.StatusForbidden)
		}
	}))
	defer s.Close()
	g, err := New(&rest.Config{Host: s.URL, QPS: -1}, "sonde-system", directory(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing could be read") {
		t.Errorf("got %v", err)
	}
}

func TestArchive(t *testing.T) {
	dir := t.TempDir()
	run(t, filepath.Join(dir, "out"))
	for _, name := range []string{"out.tar", "out.tar.gz", "out.tgz"} {
		t.Run(name, func(t *testing.T) {
			run(t, filepath.Join(dir, name))
			if diff := cmp.Diff(names(files(t, filepath.Join(dir, "out"))), names(unpack(t, filepath.Join(dir, name)))); diff != "" {
				t.Errorf("files (-directory +archive):\n%s", diff)
			}
			if _, err := NewSink(filepath.Join(dir, name), time.Now()); !errors.Is(err, fs.ErrExist) {
				t.Errorf("a second time: %v, want that it is there", err)
			}
		})
	}
}

func names(files map[string]string) []string {
	var all []string
	for n := range files {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		all[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var from io.Reader = f
	if !strings.HasSuffix(file, ".tar") {
		if from, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]string{}
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", h.Name, err))
		}
		all[strings.TrimPrefix(h.Name, "sonde-must-gather/")] = string(b)
	}
}
