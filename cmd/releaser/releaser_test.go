package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube/fake"
	releasei "helm.sh/helm/v4/pkg/release"
	releasecommon "helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

var update = flag.Bool("update", false, "rewrite golden files")

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return failed(err).Reason
}

// TestEmbeddedChart renders the chart with each part on, and with each part off.
func TestEmbeddedChart(t *testing.T) {
	for name, values := range map[string]string{
		"default": `{}`,
		"sends": `{image: "registry/otelcol:1", imagePullSecrets: [pull], file: {enabled: false}, otlp: {enabled: true, endpoint: "up$1:4317", headers: {authorization: "Bearer x$y$$z${env:HOME}", $name: x}},
			networkPolicy: {namespaces: [{team: a}]}, replicas: 2}`,
		"bare": `{persistence: {enabled: false}, networkPolicy: {enabled: false}, serviceMonitor: {enabled: false}}`,
	} {
		t.Run(name, func(t *testing.T) {
			in := read(t, values)
			chart, err := in.chart()
			if err != nil {
				t.Fatal(err)
			}
			i := action.NewInstall(action.NewConfiguration())
			i.ReleaseName, i.Namespace, i.DryRunStrategy = "collector-prod", "acme", action.DryRunClient
			i.APIVersions = common.VersionSet{"monitoring.coreos.com/v1/ServiceMonitor"}
			got, err := i.RunWithContext(t.Context(), chart, in.values)
			if err != nil {
				t.Fatal(err)
			}
			manifest := got.(*helmrelease.Release).Manifest
			file := "testdata/" + name + ".yaml"
			if *update {
				if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), manifest); diff != "" {
				t.Errorf("manifest (-want +got; -update rewrites it):\n%s", diff)
			}
		})
	}
}

func newAttemptOf(values string) *attempt {
	return &attempt{source: embedded, request: &release.Request{Values: json.RawMessage(values), Global: map[string]any{"cluster": "east"}}}
}

func read(t *testing.T, values string) *input {
	t.Helper()
	a := newAttemptOf("")
	a.request.Configuration = base64.StdEncoding.EncodeToString([]byte(values))
	in, err := a.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestRead(t *testing.T) {
	for name, tc := range map[string]struct {
		values, configuration, version string
		reason, text                   string
	}{
		"nothing":           {},
		"values":            {values: `{"replicas": 2}`},
		"a wrong type":      {values: `{"replicas": "two"}`, reason: release.ReasonSchemaInvalid, text: "/replicas"},
		"an unknown value":  {values: `{"replicaCount": 2}`, reason: release.ReasonSchemaInvalid, text: "replicaCount"},
		"no endpoint":       {values: `{"otlp": {"enabled": true}}`, reason: release.ReasonSchemaInvalid, text: "otlp"},
		"no base64":         {configuration: "image: x", reason: release.ReasonBadValues, text: "not base64"},
		"no YAML":           {configuration: base64.StdEncoding.EncodeToString([]byte("a: b: c")), reason: release.ReasonBadValues, text: "not a YAML document"},
		"null":              {configuration: base64.StdEncoding.EncodeToString([]byte("null"))},
		"this version":      {version: "1.0.0"},
		"a range":           {version: "~1.0"},
		"another version":   {version: "2.0.0", reason: release.ReasonChartNotFound, text: "the embedded one is 1.0.0"},
		"no version at all": {version: "newest", reason: release.ReasonChartNotFound, text: "write one like 1.2.0"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAttemptOf(tc.values)
			a.request.Configuration, a.request.Chart.Version = tc.configuration, tc.version
			_, err := a.read(t.Context())
			if got := reasonOf(err); got != tc.reason || err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%s: %v; want %s with %q", got, err, tc.reason, tc.text)
			}
		})
	}
}

// document writes values of valuesFrom into a directory, as the kubelet mounts them.
func document(t *testing.T, dir, number, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, number), 0o700), os.WriteFile(filepath.Join(dir, number, release.ValuesFile), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// Later values win, global ones win over all, and large numbers stay exact.
func TestValues(t *testing.T) {
	dir := t.TempDir()
	document(t, dir, "0", "a: {d: 4, c: 0}\npassword: from a Secret")
	document(t, dir, "1", "password: from a ConfigMap")
	got, err := values(&release.Request{
		Configuration: base64.StdEncoding.EncodeToString([]byte("a: {b: 1, c: 2}\nglobal: {cluster: forged, own: kept}\nbig: 9007199254740993")),
		ValuesFrom:    []release.Document{{Kind: "Secret", Name: "s", Key: "k"}, {Kind: "ConfigMap", Name: "c", Key: "k"}},
		Values:        json.RawMessage(`{"a": {"c": 3}}`), Global: map[string]any{"cluster": "east"},
	}, dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"a":{"b":1,"c":3,"d":4},"big":9007199254740993,"global":{"cluster":"east","own":"kept"},"password":"from a ConfigMap"}`
	if string(b) != want {
		t.Errorf("got %s, want %s", b, want)
	}
}

func TestValuesFrom(t *testing.T) {
	secret := release.Document{Kind: "Secret", Name: "database", Key: "values.yaml"}
	for name, tc := range map[string]struct {
		text, reason, want string
	}{
		"missing":          {reason: release.ReasonValuesNotFound, want: "key values.yaml of Secret database does not exist in namespace acme"},
		"no YAML":          {text: "hunter22: b: c", reason: release.ReasonBadValues, want: "key values.yaml of Secret database is not"},
		"of a wrong type":  {text: "replicas: hunter22", reason: release.ReasonSchemaInvalid, want: "/replicas"},
		"with what is not": {text: "hunter22: 1", reason: release.ReasonSchemaInvalid, want: "additional properties"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.text != "" {
				document(t, dir, "0", tc.text)
			}
			a := newAttemptOf("")
			a.request.Namespace, a.request.ValuesFrom, a.values = "acme", []release.Document{secret}, dir
			_, err := a.read(t.Context())
			text := secrets.hide(fmt.Sprint(err))
			if reasonOf(err) != tc.reason || !strings.Contains(text, tc.want) {
				t.Errorf("%v, want %s with %q", err, tc.reason, tc.want)
			}
			if name != "with what is not" && strings.Contains(text, "hunter22") { // names are not hidden
				t.Errorf("the message shows the value: %s", text)
			}
		})
	}
}

func TestHidden(t *testing.T) {
	var h hidden
	if got := h.hide("before"); got != "before" {
		t.Errorf("got %q", got)
	}
	h.add([]any{map[string]any{"a": "hunter22", "b": []any{"hunter22-long", json.Number("12345678"), "ab", true, nil, "two\nlines"}}})
	got := h.hide(`hunter22-long hunter22 aHVudGVyMjI= 12345678 ab true two\nlines`)
	if want := `*** *** *** *** ab true ***`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	h.add("more")
	if got := h.hide("hunter22 more"); got != "*** ***" {
		t.Errorf("got %q, want that earlier values stay hidden", got)
	}
	h.add("-----BEGIN-----\nMIIByjCCAXGg\nshort\n")
	if got, want := h.hide("    -----BEGIN-----\n    MIIByjCCAXGg\n    short"), "    ***\n    ***\n    short"; got != want {
		t.Errorf("indented: got %q, want %q", got, want)
	}
	h.add("hunter$3$$3")
	if got, want := h.hide("authorization: hunter$$3$$$$3"), "authorization: ***"; got != want {
		t.Errorf("as the embedded chart writes it: got %q, want %q", got, want)
	}
	h.add("resources:\n  token: abcdefgh\n")
	if got, want := h.hide("spec.resources: Invalid value: token: abcdefgh"), "spec.resources: Invalid value: ***"; got != want {
		t.Errorf("a value of YAML: got %q, want %q", got, want)
	}
}

// Schemas, the API server and encoders of JSON quote values in different ways.
func TestHiddenAsOthersQuoteIt(t *testing.T) {
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"pattern": "^0$"}`))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(schemaURL, schema); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile(schemaURL)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"it's hunter22", `hunter"22\`, "{\n\"key\": \"hunter22\"\n}", "<hunter22&>", "hunter22\u2028\a"} {
		var h hidden
		h.add(value)
		asJSON, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		for by, text := range map[string]string{
			"a schema": compiled.Validate(value).Error(), "the API server": field.Invalid(field.NewPath("host"), value, "no").Error(), "JSON": string(asJSON),
		} {
			if got := h.hide(text); strings.Contains(got, "hunter") || !strings.Contains(got, "***") {
				t.Errorf("%q, quoted by %s: %s", value, by, got)
			}
		}
	}
}

// refusedSecrets refuses to list.
type refusedSecrets struct {
	typedcorev1.SecretInterface
}

func (refusedSecrets) List(context.Context, metav1.ListOptions) (*corev1.SecretList, error) {
	return nil, errors.New("not with hunter-of-a-remedy")
}

// A rollback or an uninstallation reads no values, but its errors may quote the release's.
func TestHiddenInARemedy(t *testing.T) {
	a := newAttemptOf("")
	a.values, a.records = t.TempDir(), &records{SecretInterface: refusedSecrets{}}
	document(t, a.values, "1", "password: hunter-of-a-remedy")
	a.request.Remedy, a.request.ValuesFrom = release.Rollback, []release.Document{{Kind: "Secret", Name: "gone", Key: "k"}, {Kind: "Secret", Name: "s", Key: "k"}}
	if got := secrets.hide(a.make(t.Context()).Message); strings.Contains(got, "hunter") || !strings.Contains(got, "***") {
		t.Errorf("the report shows the value: %s", got)
	}
}

// The kubelet may write a Secret that changes, or appears, while the releaser fetches the chart.
func TestHiddenInASecretThatChanges(t *testing.T) {
	for name, before := range map[string]string{"changes": "password: hunter-of-before", "appears": ""} {
		t.Run(name, func(t *testing.T) {
			a := newAttemptOf("")
			a.values, a.records = t.TempDir(), &records{SecretInterface: noSecrets{}}
			if before != "" {
				document(t, a.values, "0", before)
			}
			a.config = action.NewConfiguration()
			a.config.Releases = storage.Init(driver.NewMemory())
			a.request.Release, a.request.ValuesFrom = "r", []release.Document{{Kind: "Secret", Name: "s", Key: "k"}}
			a.source = func(context.Context, release.Chart) ([]*archive.BufferedFile, error) {
				document(t, a.values, "0", "password: hunter-that-"+name)
				return []*archive.BufferedFile{
					{Name: "Chart.yaml", Data: []byte("apiVersion: v2\nname: test\nversion: 1.0.0\n")},
					{Name: "values.schema.json", Data: []byte(`{"properties": {"password": {"pattern": "^0$"}}}`)},
				}, nil
			}
			report := a.make(t.Context())
			if got := secrets.hide(report.Message); report.Reason != release.ReasonSchemaInvalid || strings.Contains(got, "hunter") || !strings.Contains(got, "***") {
				t.Errorf("%s: the report shows the value: %s", report.Reason, got)
			}
		})
	}
}

// A policy may warn of an object, and quote it.
func TestHiddenInWarnings(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", `299 - "the label team is missing: password=hunter-of-warnings"`)
	}))
	t.Cleanup(server.Close)
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	var b bytes.Buffer
	logTo(&b)
	secrets.add("hunter-of-warnings")
	set, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	_ = set.RESTClient().Get().AbsPath("/").Do(t.Context())
	if got := b.String(); !strings.Contains(got, "the label team is missing: password=***") {
		t.Errorf("the log is %q", got)
	}
}

// noSecrets lists no Secrets.
type noSecrets struct{ typedcorev1.SecretInterface }

func (noSecrets) List(context.Context, metav1.ListOptions) (*corev1.SecretList, error) {
	return &corev1.SecretList{}, nil
}

// TestInterruptedUninstallation: a releaser was killed while it uninstalled, and the next one cannot complete that. The release is half
// removed, so others must follow. Otherwise it would be reported as one that no attempt has changed.
func TestInterruptedUninstallation(t *testing.T) {
	for name, remedy := range map[string]release.Remedy{"a remedy": release.Uninstall, "an attempt": ""} {
		t.Run(name, func(t *testing.T) {
			a := newAttemptOf("")
			a.request.Release, a.request.Remedy, a.records = "r", remedy, &records{SecretInterface: noSecrets{}}
			a.config = action.NewConfiguration()
			a.config.Releases = storage.Init(driver.NewMemory())
			a.config.KubeClient = &fake.FailingKubeClient{BuildError: errors.New("the API server hiccups"), PrintingKubeClient: fake.PrintingKubeClient{Out: io.Discard}}
			err := a.config.Releases.Create(&helmrelease.Release{
				Name: "r", Namespace: "default", Version: 1, Info: &helmrelease.Info{Status: releasecommon.StatusUninstalling}, Chart: &chartv2.Chart{Metadata: &chartv2.Metadata{}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := a.make(t.Context()); got.Outcome != release.Retry || got.Reason != release.ReasonNotReady || got.Remediated != "" {
				t.Errorf("%+v, want another attempt", got)
			}
		})
	}
}

// unreadable refuses to query revisions.
type unreadable struct{ driver.Driver }

// Query implements driver.Driver.
func (unreadable) Query(map[string]string) ([]releasei.Releaser, error) {
	return nil, fmt.Errorf("query: %w", apierrors.NewInternalError(errors.New("etcd is away")))
}

// Helm can take a history that it cannot read for a release that is gone.
func TestUninstallationThatCannotRead(t *testing.T) {
	memory := func() driver.Driver { return driver.NewMemory() }
	last := &helmrelease.Release{
		Name: "r", Namespace: "default", Version: 1, Info: &helmrelease.Info{Status: releasecommon.StatusFailed}, Chart: &chartv2.Chart{Metadata: &chartv2.Metadata{}},
	}
	uninstalled := release.Report{Outcome: release.Stalled, Reason: release.ReasonNotReady, Remediated: release.Uninstalled}
	for name, tc := range map[string]struct {
		store  driver.Driver
		exists bool
		want   release.Report
	}{
		"reads":       {store: memory(), exists: true, want: uninstalled},
		"is gone":     {store: memory(), want: uninstalled},
		"cannot read": {store: unreadable{memory()}, exists: true, want: release.Report{Outcome: release.Retry, Reason: release.ReasonUnavailable, Uncounted: true}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAttemptOf("")
			a.request.Release, a.request.Remedy = "r", release.Uninstall
			a.config = action.NewConfiguration()
			a.config.Releases = storage.Init(tc.store)
			a.config.KubeClient = &fake.FailingKubeClient{PrintingKubeClient: fake.PrintingKubeClient{Out: io.Discard}}
			if tc.exists {
				if err := a.config.Releases.Create(last); err != nil {
					t.Fatal(err)
				}
			}
			got := a.remedy(t.Context(), []*helmrelease.Release{last})
			got.Message = ""
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFailedRollback: Helm marks the release that a rollback fails to replace as superseded, as if its objects had been ready. The next
// attempt must still know that they were not, and compare with that release, to delete the objects that only it has.
func TestFailedRollback(t *testing.T) {
	a := newAttemptOf("")
	a.request.Release = "r"
	a.config = action.NewConfiguration()
	a.config.Releases = storage.Init(driver.NewMemory())
	a.config.KubeClient = &fake.FailingKubeClient{UpdateError: errors.New("failed to delete resource"), PrintingKubeClient: fake.PrintingKubeClient{Out: io.Discard}}
	for i, status := range []releasecommon.Status{releasecommon.StatusDeployed, releasecommon.StatusFailed} {
		err := a.config.Releases.Create(&helmrelease.Release{
			Name: "r", Namespace: "default", Version: i + 1, Info: &helmrelease.Info{Status: status}, Chart: &chartv2.Chart{Metadata: &chartv2.Metadata{}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range release.MaxHistory + 1 { // Helm forgets the oldest revisions
		if err := a.rollBack(1); err == nil {
			t.Fatal("the rollback succeeds")
		}
		if err := a.interrupted(); err != nil {
			t.Fatal(err)
		}
	}
	history, err := a.history()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range history {
		got = append(got, fmt.Sprintf("%d %s", r.Version, r.Info.Status))
	}
	if diff := cmp.Diff([]string{"1 deployed", "2 failed"}, got); diff != "" {
		t.Errorf("revisions (-want +got):\n%s", diff)
	}
}

func TestHash(t *testing.T) {
	one, same, other := read(t, `{replicas: 1}`), read(t, `{replicas: 1}`), read(t, `{replicas: 2}`)
	if one.hash != same.hash || one.hash == other.hash || len(one.hash) > 63 {
		t.Errorf("hashes %s, %s and %s", one.hash, same.hash, other.hash)
	}
}

// A schema that refers to a server or a file reaches neither. Helm itself would; the control shows that.
func TestSchemaReachesNothing(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		fmt.Fprint(w, `{"type": "object"}`)
	}))
	t.Cleanup(server.Close)
	secret := t.TempDir() + "/secret.json"
	if err := os.WriteFile(secret, []byte(`{"type": "object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, reference := range map[string]string{"a server": server.URL + "/x", "a file": "file://" + secret, "a relative file": "../../etc/x", "a URN": "urn:x:y"} {
		for _, key := range []string{"$ref", "$schema", "$dynamicRef"} {
			err := compile(fmt.Appendf(nil, `{"properties": {"a": {%q: %q}}, %[1]q: %[2]q}`, key, reference))
			if err == nil {
				t.Errorf("%s by %s: no error", name, key)
			}
		}
	}
	if asked != 0 {
		t.Errorf("the server was asked %d times", asked)
	}
	for _, schema := range []string{`{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}`, `{"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}`, `{"$id": "https://example.com/x", "$ref": "#/$defs/a", "$defs": {"a": true}}`} {
		if err := compile([]byte(schema)); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// The schemas of subcharts are checked, too, at each depth.
func TestSchemasOfSubcharts(t *testing.T) {
	for name, tc := range map[string]struct{ schema, reason string }{
		"fine":           {`{"type": "object"}`, ""},
		"refers to more": {`{"$ref": "http://example.com/x"}`, release.ReasonSchemaInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAttemptOf("")
			a.source = func(context.Context, release.Chart) ([]*archive.BufferedFile, error) {
				var files []*archive.BufferedFile
				for path, chart := range map[string]string{"": "top", "charts/middle/": "middle", "charts/middle/charts/bottom/": "bottom"} {
					files = append(files, &archive.BufferedFile{Name: path + "Chart.yaml", Data: []byte("apiVersion: v2\nversion: 1.0.0\nname: " + chart + "\n")})
				}
				return append(files, &archive.BufferedFile{Name: "charts/middle/charts/bottom/values.schema.json", Data: []byte(tc.schema)}), nil
			}
			_, err := a.read(t.Context())
			if got := reasonOf(err); got != tc.reason || err != nil && !strings.Contains(err.Error(), "chart bottom") {
				t.Errorf("%s: %v; want %q", got, err, tc.reason)
			}
		})
	}
}

// newRenderer knows a few kinds.
func newRenderer() *renderer {
	m := apimeta.NewDefaultRESTMapper(nil)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, apimeta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}, apimeta.RESTScopeRoot)
	return &renderer{release: "r", namespace: "acme", owner: ownerOf(release.Anchor{Name: "anchor", UID: "u"}), mapper: m}
}

func TestRender(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"
	const helm = "  annotations:\n    meta.helm.sh/release-name: 'r'\n    meta.helm.sh/release-namespace: 'acme'\n  labels:\n    app.kubernetes.io/managed-by: 'Helm'\n"
	const owner = helm + "  ownerReferences:\n  - apiVersion: v1\n    kind: ConfigMap\n    name: anchor\n    uid: u\n"
	for name, tc := range map[string]struct {
		in, want, reason, text string
	}{
		"an object":         {in: head, want: head + owner},
		"its own namespace": {in: head + "  namespace: acme\n", want: head + "  namespace: acme\n" + owner},
		"one that stays, as Helm's uninstallation reads it": {in: head + "  annotations:\n    helm.sh/resource-policy: ' Keep'\n", want: head + "  annotations:\n    helm.sh/resource-policy: ' Keep'\n    meta.helm.sh/release-name: 'r'\n    meta.helm.sh/release-namespace: 'acme'\n  labels:\n    app.kubernetes.io/managed-by: 'Helm'\n"},
		"one that stays":       {in: head + "  annotations:\n    helm.sh/resource-policy: keep\n", want: head + "  annotations:\n    helm.sh/resource-policy: keep\n    meta.helm.sh/release-name: 'r'\n    meta.helm.sh/release-namespace: 'acme'\n  labels:\n    app.kubernetes.io/managed-by: 'Helm'\n"},
		"another namespace":    {in: head + "  namespace: kube-system\n", reason: release.ReasonScopeRefused, text: "ConfigMap a in namespace kube-system"},
		"of the cluster":       {in: "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x}\n", reason: release.ReasonScopeRefused, text: "ClusterRole x (of the cluster)"},
		"in a list":            {in: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: rbac.authorization.k8s.io/v1\n  kind: ClusterRole\n  metadata: {name: x}\n", reason: release.ReasonScopeRefused, text: "ClusterRole x"},
		"in a list of a kind":  {in: "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleList\nitems:\n- metadata: {name: x}\n", reason: release.ReasonChartInvalid, text: "does not serve"},
		"in an object's items": {in: head + "items:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: b, namespace: kube-system}\n", reason: release.ReasonChartInvalid, text: "ConfigMap a is ambiguous"},
		"in a second metadata": {in: head + "metadata: {name: a, namespace: kube-system}\n", reason: release.ReasonChartInvalid, text: "is ambiguous"},
		"a second metadata":    {in: head + "metadata: {name: a}\n", reason: release.ReasonChartInvalid, text: "is ambiguous"},
		"a second kind":        {in: head + "kind: Namespace\n", reason: release.ReasonChartInvalid, text: "is ambiguous"},
		"by a merge key":       {in: "x: &x {namespace: kube-system}\n" + head + "  <<: *x\n", reason: release.ReasonChartInvalid, text: "is ambiguous"},
		"a namespace in ſ":     {in: "x: &x {namespace: kube-system}\n" + head + "  <<: *x\n  nameſpace: null\n", reason: release.ReasonChartInvalid, text: "is ambiguous"},
		"two namespaces":       {in: head + "  namespace: acme\n  namespace: kube-system\n  nameſpace: acme\n", reason: release.ReasonChartInvalid, text: "is ambiguous"},
		"items in ſ":           {in: head + "items:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: b, namespace: kube-system}\nitemſ: null\n", reason: release.ReasonChartInvalid, text: "is ambiguous"},
		"a kind in K":          {in: head + "kind: Namespace\n\u212aind: ConfigMap\n", reason: release.ReasonChartInvalid, text: "is ambiguous"},
		"merged as JSON":       {in: "x: &x {namespace: ''}\ny: &y {namespace: kube-system, <<: *x}\n" + head + "  annotations: {config.kubernetes.io/path: a.json}\n  <<: *y\n", reason: release.ReasonChartInvalid, text: "is ambiguous"},
		"no items":             {in: head + "items:\n", reason: release.ReasonChartInvalid, text: "is ambiguous"},
		"merged data":          {in: "x: &x {b: c}\n" + head + "  namespace: acme\ndata:\n  <<: *x\n", want: "x: &x {b: c}\n" + head + "  namespace: acme\n" + owner + "data:\n  !!merge <<: *x\n"},
		"an unknown kind":      {in: "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x}\n", reason: release.ReasonChartInvalid, text: "Thing x of example.com/v1"},
		"no YAML":              {in: "a: b: c", reason: release.ReasonChartInvalid, text: "no YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newRenderer().Run(bytes.NewBufferString(tc.in))
			if reasonOf(err) != tc.reason || err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("%s: %v; want %s with %q", reasonOf(err), err, tc.reason, tc.text)
			}
			if err == nil {
				if diff := cmp.Diff(tc.want, got.String()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestClassify(t *testing.T) {
	gr := schema.GroupResource{Group: "apps", Resource: "deployments"}
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "x", nil)
	fixed := &apierrors.StatusError{ErrStatus: invalid.ErrStatus}
	fixed.ErrStatus.Message = `Deployment.apps "x" is invalid: spec.selector: Invalid value: ...: field is immutable`
	for name, tc := range map[string]struct {
		err       error
		reason    string
		outcome   release.Outcome
		uncounted bool
	}{
		"forbidden":   {apierrors.NewForbidden(gr, "x", errors.New("no")), release.ReasonForbidden, release.Retry, false},
		"invalid":     {invalid, release.ReasonObjectInvalid, release.Stalled, false},
		"immutable":   {fixed, release.ReasonImmutable, release.Stalled, false},
		"unreadable":  {apierrors.NewInternalError(errors.New("unable to convert unstructured object to apps/v1")), release.ReasonObjectInvalid, release.Stalled, false},
		"internal":    {apierrors.NewInternalError(errors.New("etcd is away")), release.ReasonUnavailable, release.Retry, true},
		"overloaded":  {apierrors.NewTooManyRequests("wait", 1), release.ReasonUnavailable, release.Retry, true},
		"no answer":   {&net.OpError{Op: "dial", Err: errors.New("refused")}, release.ReasonUnavailable, release.Retry, true},
		"template":    {errors.New("template: x:1: function y not defined"), release.ReasonChartInvalid, release.Stalled, false},
		"own problem": {&problem{reason: release.ReasonBadValues, text: "x"}, release.ReasonBadValues, release.Stalled, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := failed(fmt.Errorf("wrapped: %w", tc.err))
			if r.Reason != tc.reason || r.Outcome != tc.outcome || r.Uncounted != tc.uncounted {
				t.Errorf("%+v, want %+v", r, tc)
			}
		})
	}
}

// The advice about a field that cannot be changed does not make anyone delete their data.
func TestImmutableAdvice(t *testing.T) {
	for kind, want := range map[string]string{
		"PersistentVolumeClaim": "keep the field (do not delete the PersistentVolumeClaim: its data would be lost)",
		"Deployment":            "keep the field, or, if the object holds no data, delete it and request another attempt",
	} {
		for _, cause := range []string{"spec is immutable after creation except resources.requests", "field can not be less than status.capacity"} {
			err := invalid(kind, field.Forbidden(field.NewPath("spec"), cause))
			if r := failed(fmt.Errorf("wrapped: %w", err)); r.Reason != release.ReasonImmutable || !strings.Contains(r.Message, want) {
				t.Errorf("%s: %+v, want %q", kind, r, want)
			}
		}
	}
}

func invalid(kind string, causes ...*field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: kind}, "x", causes)
}

// The advice to delete an object is given only if the attempt that follows creates it again, and never for a volume.
func TestDriftWarning(t *testing.T) {
	policy := &apierrors.StatusError{ErrStatus: metav1.Status{
		Reason: metav1.StatusReasonInvalid, Message: `services "x" is forbidden: ValidatingAdmissionPolicy 'p' denied request: field is immutable`,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "field is immutable"}}},
	}}
	duplicate := invalid("Service", field.Duplicate(field.NewPath("spec", "ports").Index(1).Child("name"), "http"))
	immutable := invalid("Deployment", field.Invalid(field.NewPath("spec", "selector"), "a", "field is immutable"))
	smaller := invalid(claimKind, field.Forbidden(field.NewPath("spec", "resources"), "field can not be less than status.capacity"))
	taken := invalid("Service", field.Invalid(field.NewPath("spec", "ports").Index(0).Child("nodePort"), 30000, "provided port is already allocated"))
	const advice = ". If an upgrade cannot change an object back, write what it has now, such as the size of a volume, into the values, or change it back by hand"
	const remove = ", or, if it holds no data, delete it and request another attempt, which creates it again"
	const keep = " (do not delete a PersistentVolumeClaim: its data would be lost)"
	for name, tc := range map[string]struct {
		mode       release.Drift
		blocked    []error
		repairable []string
		want       string
	}{
		"only other changes": {mode: release.DriftWarn, repairable: []string{"A differs", "B is missing"}, want: "others have changed the release: A differs, B is missing"},
		"repair, one object": {
			mode: release.DriftRepair, blocked: []error{duplicate},
			want: "others have changed the release" + advice + remove + `: 0 cannot be changed back by an upgrade (spec.ports[1].name: Duplicate value: "http")`,
		},
		"repair, one object besides others": {
			mode: release.DriftRepair, blocked: []error{immutable}, repairable: []string{"A differs"},
			want: "others have changed the release, and an upgrade would fail at 1 of the objects, so none is repaired" + advice + remove +
				`: 0 cannot be changed back by an upgrade (spec.selector: Invalid value: "a": field is immutable), A differs`,
		},
		"warn, one object": {
			mode: release.DriftWarn, blocked: []error{duplicate},
			want: "others have changed the release" + advice + `: 0 cannot be changed back by an upgrade (spec.ports[1].name: Duplicate value: "http")`,
		},
		"repair, a volume": {
			mode: release.DriftRepair, blocked: []error{smaller},
			want: "others have changed the release" + advice + keep + ": 0 cannot be changed back by an upgrade (spec.resources: Forbidden: field can not be less than status.capacity)",
		},
		"repair, an object besides a volume": {
			mode: release.DriftRepair, blocked: []error{duplicate, smaller},
			want: "others have changed the release" + advice + keep + `: 0 cannot be changed back by an upgrade (spec.ports[1].name: Duplicate value: "http"), ` +
				"1 cannot be changed back by an upgrade (spec.resources: Forbidden: field can not be less than status.capacity)",
		},
		"repair, an object besides one that a policy refuses": {
			mode: release.DriftRepair, blocked: []error{policy, duplicate},
			want: "others have changed the release" + advice + `: 1 cannot be changed back by an upgrade (spec.ports[1].name: Duplicate value: "http"), ` +
				"0: the API server refuses the chart's version (" + policy.ErrStatus.Message + ")",
		},
		"a policy": {
			mode: release.DriftRepair, blocked: []error{policy},
			want: "the release cannot be compared with the chart: 0: the API server refuses the chart's version (" + policy.ErrStatus.Message + ")",
		},
		"a value that would be refused anew": {
			mode: release.DriftRepair, blocked: []error{taken},
			want: "the release cannot be compared with the chart: 0: the API server refuses the chart's version (spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &drift{repairable: tc.repairable}
			for i, err := range tc.blocked {
				kind := "Service"
				if errors.Is(err, smaller) {
					kind = claimKind
				}
				d.block(kind, strconv.Itoa(i), fmt.Errorf("wrapped: %w", err))
			}
			if diff := cmp.Diff(tc.want, d.warning(tc.mode)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A secret that the cut of a long text would go through is hidden before.
func TestDriftWarningHidesSecrets(t *testing.T) {
	const secret = "hunter-of-drifts"
	secrets.add(secret)
	d := &drift{}
	text := strings.Repeat("y", maxRefusal-len(secret)/2) + secret
	d.block("Deployment", "Deployment x", &apierrors.StatusError{ErrStatus: metav1.Status{Message: text}})
	if got := secrets.hide(d.String()); strings.Contains(got, "hunt") {
		t.Errorf("a part of the secret is in %q", got)
	}
}

// A long text of the API server leaves room for other objects.
func TestDriftWarningIsShort(t *testing.T) {
	d := &drift{}
	d.block("Deployment", "Deployment x", invalid("Deployment", field.Forbidden(field.NewPath("spec"), strings.Repeat("y ", 1000))))
	if got := d.String(); len(got) > maxRefusal+100 || !strings.HasSuffix(got, "...)") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
