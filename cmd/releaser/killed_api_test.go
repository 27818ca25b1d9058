//go:build api

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/release/common"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// deadly lets a number of writes reach the API server, and nothing after them, as if the releaser was killed then.
type deadly struct {
	http.RoundTripper

	left   *atomic.Int64
	killed *atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (d deadly) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.killed.Load() || writes(r) && d.left.Add(-1) < 0 {
		d.killed.Store(true)
		return nil, errors.New("killed")
	}
	return d.RoundTripper.RoundTrip(r)
}

func writes(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.Contains(r.URL.RawQuery, "dryRun")
}

// refusing answers one write as the API server does if the releaser lacks the right.
type refusing struct {
	http.RoundTripper

	which int64 // the first write is 0
	done  *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (f refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	if !writes(r) || f.done.Add(1)-1 != f.which {
		return f.RoundTripper.RoundTrip(r)
	}
	const status = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no right"}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Request: r, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)),
	}, nil
}

// charts of the test, by version. Versions 3 and 4 never become ready, because nothing runs their Pods.
var versions = map[string]map[string]string{
	"1.0.0": {"a": configMap("a", "1"), "b": configMap("b", "1"), "kept": strings.Replace(configMap("kept", "1"), "  name", "  annotations: {helm.sh/resource-policy: keep}\n  name", 1)},
	"2.0.0": {"a": configMap("a", "2"), "c": configMap("c", "2"), "d": configMap("d", "2"), "hook": strings.Replace(configMap("hook", "2"), "  name", "  annotations: {helm.sh/hook: pre-upgrade}\n  name", 1)},
	"3.0.0": {"a": configMap("a", "3"), "e": configMap("e", "3"), "deployment": deployment},
	"4.0.0": {"b": configMap("b", "4"), "f": configMap("f", "4"), "deployment": deployment},
	"5.0.0": {"a": configMap("a", "5"), "claim": claimOf("1Gi")},
	"6.0.0": {"a": configMap("a", "6"), "claim": claimOf("2Gi")},
	"7.0.0": {"a": configMap("a", "7"), "claim": claimOf("2Gi"), "service": service},
}

const service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{name: http, port: 80}]}\n"

func claimOf(size string) string {
	return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: data\n  annotations: {helm.sh/resource-policy: keep}\n" +
		"spec:\n  accessModes: [ReadWriteOnce]\n  storageClassName: grows\n  resources: {requests: {storage: " + size + "}}\n"
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata: {value: %q}\n", name, value)
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: never}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: x, image: x}]}
`

func sourceOf(_ context.Context, chart release.Chart) ([]*archive.BufferedFile, error) {
	version := chart.Version
	files := []*archive.BufferedFile{{Name: "Chart.yaml", Data: []byte("apiVersion: v2\nname: test\nversion: " + version + "\n")}}
	for _, name := range slices.Sorted(maps.Keys(versions[version])) {
		files = append(files, &archive.BufferedFile{Name: "templates/" + name + ".yaml", Data: []byte(versions[version][name])})
	}
	return files, nil
}

// place is a namespace with an anchor.
type place struct {
	t      *testing.T
	config string // of the releaser
	set    kubernetes.Interface
	anchor *corev1.ConfigMap
	drift  release.Drift
}

func newPlace(t *testing.T, config string, set kubernetes.Interface) *place {
	t.Helper()
	ns, err := set.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, config: config, set: set}
	p.anchor, err = set.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "anchor"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// step is an attempt to release a version, or a remedy.
type step struct {
	version string
	remedy  release.Remedy
}

// attempt makes a step, and is killed after a number of writes. It returns whether it was.
func (p *place) attempt(do step, writes int64) (report release.Report, killed bool) {
	p.t.Helper()
	d := deadly{left: &atomic.Int64{}, killed: &atomic.Bool{}}
	d.left.Store(writes)
	report = p.attemptThrough(do, func(rt http.RoundTripper) http.RoundTripper { return deadly{rt, d.left, d.killed} })
	return report, d.killed.Load()
}

// attemptThrough makes a step through another transport.
func (p *place) attemptThrough(do step, wrap func(http.RoundTripper) http.RoundTripper) release.Report {
	p.t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &p.config, &p.anchor.Namespace
	flags.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.Wrap(wrap)
		return c
	}
	q := &release.Request{
		Release: "r", Namespace: p.anchor.Namespace, Anchor: release.Anchor{Name: p.anchor.Name, UID: string(p.anchor.UID)}, Chart: release.Chart{Version: do.version}, Drift: p.drift,
		Install: 2, Upgrade: 2, Remedy: do.remedy,
	}
	a, err := newAttempt(q, flags)
	if err != nil {
		p.t.Fatal(err)
	}
	a.source = sourceOf
	return a.make(p.t.Context())
}

// verify checks that exactly the objects of a version exist, or none if it is empty. Kept objects and those of hooks may stay.
func (p *place) verify(version string, when string) {
	p.t.Helper()
	want := map[string]string{}
	for name := range versions[version] {
		want[name] = version[:1]
	}
	list, err := p.set.CoreV1().ConfigMaps(p.anchor.Namespace).List(p.t.Context(), metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	got := map[string]string{}
	for i := range list.Items {
		if o := &list.Items[i]; o.Name != p.anchor.Name && o.Name != "kube-root-ca.crt" {
			got[o.Name] = o.Data["value"]
		}
	}
	for _, leftover := range []string{"kept", "hook"} { // these stay
		delete(got, leftover)
		delete(want, leftover)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.t.Errorf("%s: objects (-want +got):\n%s", when, diff)
	}
	deployments, err := p.set.AppsV1().Deployments(p.anchor.Namespace).List(p.t.Context(), metav1.ListOptions{})
	if err != nil || len(deployments.Items) != 0 {
		p.t.Errorf("%s: %d Deployments, %v", when, len(deployments.Items), err)
	}
	p.verifyHistory(version, when)
}

func (p *place) verifyHistory(version, when string) {
	p.t.Helper()
	secrets, err := p.set.CoreV1().Secrets(p.anchor.Namespace).List(p.t.Context(), metav1.ListOptions{LabelSelector: "owner=helm"})
	if err != nil {
		p.t.Fatal(err)
	}
	deployed := 0
	for i := range secrets.Items {
		s := &secrets.Items[i]
		status := common.Status(s.Labels["status"])
		if status == common.StatusDeployed {
			deployed++
		}
		if status.IsPending() || len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != p.anchor.UID {
			p.t.Errorf("%s: revision %s is %s, owned by %v", when, s.Name, status, s.OwnerReferences)
		}
	}
	if version == "" && len(secrets.Items) > 0 || version != "" && deployed != 1 || len(secrets.Items) > release.MaxHistory {
		p.t.Errorf("%s: %d revisions, %d of them deployed", when, len(secrets.Items), deployed)
	}
}

// TestKilledAfterEachWrite kills the releaser after each of its writes. The next step leaves the objects of its version and no others, and no
// revision that is pending.
func TestKilledAfterEachWrite(t *testing.T) {
	config, set := startAPI(t)
	points := 0
	rollback, uninstall := step{remedy: release.Rollback}, step{remedy: release.Uninstall}
	v1, v2, v3, v4 := step{version: "1.0.0"}, step{version: "2.0.0"}, step{version: "3.0.0"}, step{version: "4.0.0"}
	for _, tc := range []struct {
		name   string
		before []step // not killed
		step   step
		next   step
		want   string // the version whose objects are there in the end
	}{
		{"install", nil, v1, v1, "1.0.0"},
		{"install, and another version follows", nil, v1, v2, "2.0.0"},
		{"upgrade", []step{v1}, v2, v2, "2.0.0"},
		{"upgrade, and the old version follows", []step{v1}, v2, v1, "1.0.0"},
		{"upgrade, and a rollback follows", []step{v2}, v3, rollback, "2.0.0"},
		{"rollback", []step{v1, v2, v3}, rollback, rollback, "2.0.0"},
		{"rollback of several", []step{v2, v3, v4, v3}, rollback, rollback, "2.0.0"},
		{"rollback, and another version follows", []step{v1, v2, v3}, rollback, v1, "1.0.0"},
		{"uninstall", []step{v4, v3}, uninstall, uninstall, ""},
		{"uninstall of an upgrade", []step{v1, v3}, uninstall, uninstall, ""},
		{"uninstall, and a version follows", []step{v3}, uninstall, v2, "2.0.0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for writes := int64(0); ; writes++ {
				p := newPlace(t, config, set)
				for _, do := range tc.before {
					if r, _ := p.attempt(do, 1<<30); (r.Outcome == release.Ready) != (do == v1 || do == v2) {
						t.Fatalf("version %s: %+v", do.version, r)
					}
				}
				_, killed := p.attempt(tc.step, writes)
				if killed {
					points++
				}
				when := fmt.Sprintf("killed after %d writes", writes)
				report, _ := p.attempt(tc.next, 1<<30)
				if ok := report.Outcome == release.Ready || tc.next.remedy != "" && report.Outcome == release.Stalled; !ok {
					t.Errorf("%s: the next step: %+v", when, report)
				} else {
					p.verify(tc.want, when)
				}
				if !killed {
					t.Logf("%d writes", writes)
					return
				}
			}
		})
	}
	if points < 30 {
		t.Errorf("%d points, want at least 30", points)
	}
	t.Logf("killed at %d points", points)
}

// TestRollbackRefusedOnce refuses each write of a rollback, one at a time. The next rollback still leaves the objects of its version and no
// others: Helm marks the failed upgrade as superseded then, as if it had been ready.
func TestRollbackRefusedOnce(t *testing.T) {
	config, set := startAPI(t)
	for which := int64(0); ; which++ {
		p := newPlace(t, config, set)
		for _, version := range []string{"1.0.0", "3.0.0"} {
			p.attempt(step{version: version}, 1<<30)
		}
		done := &atomic.Int64{}
		first := p.attemptThrough(step{remedy: release.Rollback}, func(rt http.RoundTripper) http.RoundTripper { return refusing{rt, which, done} })
		when := fmt.Sprintf("write %d of a rollback refused (%s: %s)", which, first.Outcome, first.Message)
		if report, _ := p.attempt(step{remedy: release.Rollback}, 1<<30); report.Remediated != release.RolledBack {
			t.Errorf("%s: the next one: %+v", when, report)
		}
		p.verify("1.0.0", when)
		if done.Load() <= which {
			t.Logf("%d writes", which)
			return
		}
	}
}

// What a failed attempt has left is pruned by the next one, and by a rollback.
func TestKilledNeverLeavesOrphans(t *testing.T) {
	config, set := startAPI(t)
	p := newPlace(t, config, set)
	for _, version := range []string{"1.0.0", "3.0.0", "4.0.0"} {
		p.attempt(step{version: version}, 1<<30)
	}
	if _, err := set.CoreV1().ConfigMaps(p.anchor.Namespace).Get(t.Context(), "e", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object of the first failed version: %v", err)
	}
	report, _ := p.attempt(step{remedy: release.Rollback}, 1<<30)
	if report.Remediated != release.RolledBack || report.Revision != 4 {
		t.Errorf("%+v, want revision 4", report)
	}
	p.verify("1.0.0", "rolled back")
	if again, _ := p.attempt(step{remedy: release.Rollback}, 1<<30); again.Remediated != release.RolledBack || again.Revision != 4 {
		t.Errorf("again: %+v, want nothing to be done", again)
	}
}

// startAPI starts an API server, and returns a kubeconfig and a client.
func startAPI(t *testing.T) (config string, set kubernetes.Interface) {
	t.Helper()
	env := &envtest.Environment{}
	if _, err := env.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Stop() })
	admin, err := env.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := admin.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	config = t.TempDir() + "/kubeconfig"
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	set = kubernetes.NewForConfigOrDie(env.Config)
	return config, set
}

// TestDrift changes and deletes objects of a release behind Helm's back.
func TestDrift(t *testing.T) {
	config, set := startAPI(t)
	p := newPlace(t, config, set)
	p.drift = release.DriftWarn
	expect := func(reason string, texts ...string) {
		t.Helper()
		r, _ := p.attempt(step{version: "1.0.0"}, 1<<30)
		if r.Outcome != release.Ready || r.Reason != reason {
			t.Errorf("%+v, want %s", r, reason)
		}
		for _, text := range texts {
			if !strings.Contains(r.Message, text) {
				t.Errorf("message %q, want %q", r.Message, text)
			}
		}
	}
	expect(release.ReasonReleased)
	expect(release.ReasonUpToDate)
	maps := set.CoreV1().ConfigMaps(p.anchor.Namespace)
	patch := func(text string) {
		t.Helper()
		if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"data": {"own": "x"}, "metadata": {"labels": {"team": "x"}}}`)
	expect(release.ReasonUpToDate) // the chart does not set these
	patch(`{"data": {"value": "changed"}}`)
	if err := maps.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(release.ReasonDrifted, "ConfigMap a differs", "ConfigMap b is missing")
	expect(release.ReasonDrifted, "ConfigMap a differs", "ConfigMap b is missing")
	p.drift = ""
	expect(release.ReasonUpToDate)
	p.drift = release.DriftRepair
	expect(release.ReasonDriftRepaired, "ConfigMap a differs", "ConfigMap b is missing")
	expect(release.ReasonUpToDate)
	a, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || a.Data["value"] != "1" || a.Data["own"] != "x" {
		t.Errorf("%v, %v", a.Data, err)
	}
	p.verify("1.0.0", "repaired")
}

// boundClaim makes the claim of versions 5 and 6 as another release has left it, and binds it. It returns what enlarges it by hand.
func boundClaim(t *testing.T, p *place) (enlarge func(size string)) {
	t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, Provisioner: "example.org/none", AllowVolumeExpansion: new(true)}
	if _, err := p.set.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	claims := p.set.CoreV1().PersistentVolumeClaims(p.anchor.Namespace)
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "data", Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"},
			Annotations: map[string]string{"meta.helm.sh/release-name": "r", "meta.helm.sh/release-namespace": p.anchor.Namespace},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new("grows"), VolumeName: "volume",
		},
	}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	c, err := claims.Create(t.Context(), c, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	enlarge = func(size string) {
		t.Helper()
		text := fmt.Sprintf(`{"spec": {"resources": {"requests": {"storage": %q}}}}`, size)
		if c, err = claims.Patch(t.Context(), "data", types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}
		if _, err = claims.UpdateStatus(t.Context(), c, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: c.Spec.Resources.Requests}
	if _, err := claims.UpdateStatus(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return enlarge
}

// TestDriftOfAVolume: someone has enlarged a volume. No upgrade is tried, because it would fail, and no message advises to delete it.
func TestDriftOfAVolume(t *testing.T) {
	config, set := startAPI(t)
	p := newPlace(t, config, set)
	p.drift = release.DriftRepair
	enlarge := boundClaim(t, p)
	attempt := func(version, reason string, revision int) string {
		t.Helper()
		r, _ := p.attempt(step{version: version}, 1<<30)
		if r.Outcome != release.Ready || r.Reason != reason || r.Revision != revision || r.History[0].Revision != revision {
			t.Errorf("%+v, want %s and revision %d", r, reason, revision)
		}
		return r.Message
	}
	attempt("5.0.0", release.ReasonReleased, 1)
	attempt("5.0.0", release.ReasonUpToDate, 1)
	enlarge("2Gi")
	const advice = "write what it has now, such as the size of a volume, into the values, or change it back by hand (do not delete a PersistentVolumeClaim: its data would be lost): " +
		"PersistentVolumeClaim data cannot be changed back by an upgrade (spec.resources.requests.storage: Forbidden: field can not be less than status.capacity)"
	for _, p.drift = range []release.Drift{release.DriftWarn, release.DriftRepair, release.DriftRepair} {
		if got := attempt("5.0.0", release.ReasonDrifted, 1); !strings.Contains(got, advice) || strings.Contains(got, "none is repaired") {
			t.Errorf("with drift %s: message %q, want %q", p.drift, got, advice)
		}
	}
	maps := set.CoreV1().ConfigMaps(p.anchor.Namespace)
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got := attempt("5.0.0", release.ReasonDrifted, 1)
	for _, text := range []string{advice, "an upgrade would fail at 1 of the objects, so none is repaired", "ConfigMap a is missing"} {
		if !strings.Contains(got, text) {
			t.Errorf("message %q, want %q", got, text)
		}
	}
	if _, err := maps.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap is repaired: %v", err)
	}
	attempt("6.0.0", release.ReasonReleased, 2) // the values have the new size
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	attempt("6.0.0", release.ReasonDriftRepaired, 3)
}

// TestDriftOfAService: a Service that someone has changed is deleted as the message advises, and is created again. The message does not
// advise that while something else would keep the Service from being created.
func TestDriftOfAService(t *testing.T) {
	config, set := startAPI(t)
	p := newPlace(t, config, set)
	p.drift = release.DriftRepair
	enlarge := boundClaim(t, p)
	enlarge("2Gi")
	check := func(reason string) string {
		t.Helper()
		r, _ := p.attempt(step{version: "7.0.0"}, 1<<30)
		if r.Outcome != release.Ready || r.Reason != reason {
			t.Errorf("%+v, want %s", r, reason)
		}
		return r.Message
	}
	const advice = "delete it and request another attempt"
	const name = `Service web cannot be changed back by an upgrade (spec.ports[1].name: Duplicate value: "http")`
	services := set.CoreV1().Services(p.anchor.Namespace)
	change := func() {
		t.Helper()
		if _, err := services.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec": {"ports": [{"name": "http", "port": 81}]}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	check(release.ReasonReleased)
	change()
	if got := check(release.ReasonDrifted); !strings.Contains(got, advice) || !strings.Contains(got, name) {
		t.Errorf("message %q, want %q and %q", got, advice, name)
	}
	p.drift = release.DriftWarn
	if got := check(release.ReasonDrifted); strings.Contains(got, advice) || !strings.Contains(got, name) {
		t.Errorf("with drift Warn: message %q, want %q, but not %q", got, name, advice)
	}
	p.drift = release.DriftRepair
	if err := services.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	check(release.ReasonDriftRepaired)
	if s, err := services.Get(t.Context(), "web", metav1.GetOptions{}); err != nil || s.Spec.Ports[0].Port != 80 {
		t.Errorf("the Service after its repair: %v, %v", s, err)
	}
	change()
	enlarge("3Gi")
	if got := check(release.ReasonDrifted); strings.Contains(got, advice) || !strings.Contains(got, name) || !strings.Contains(got, "PersistentVolumeClaim data cannot") {
		t.Errorf("besides a volume: message %q, want no advice to delete", got)
	}
}

// TestDriftAgainstAPolicy: an object that a policy refuses, although it is as the chart has it, is not taken for one that others have
// changed.
func TestDriftAgainstAPolicy(t *testing.T) {
	config, set := startAPI(t)
	p := newPlace(t, config, set)
	p.drift = release.DriftRepair
	check := func() release.Report {
		t.Helper()
		r, _ := p.attempt(step{version: "1.0.0"}, 1<<30)
		if r.Outcome != release.Ready {
			t.Fatalf("%+v", r)
		}
		return r
	}
	check()
	policies := set.AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-b"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "object.metadata.name != 'b'", Message: "b is closed"}},
	}}
	if _, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-b"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "no-b", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := check()
	for r.Reason == release.ReasonUpToDate { // the API server takes a moment to enforce the policy
		r = check()
	}
	const start, refusal, end = "the release cannot be compared with the chart: ConfigMap b: the API server refuses the chart's version (", "'no-b'", "b is closed)"
	if r.Reason != release.ReasonDrifted || !strings.HasPrefix(r.Message, start) || !strings.Contains(r.Message, refusal) || !strings.HasSuffix(r.Message, end) {
		t.Errorf("%+v, want %s...%s...%s", r, start, refusal, end)
	}
}
