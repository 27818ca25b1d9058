//go:build e2e

package operations

import (
	"context"
	"encoding/base64"
	"io"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/test/cluster"

	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// The files that the plugin collects hold objects and logs, but no Secret, no stamp and no path of the webhook.
func TestOpsMustGather(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	d := cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"})
	accessToken(t, pc)
	tr := cluster.GatedTrace(t, d, sondev1.TraceGate{})
	cluster.AwaitCapturing(t, tr)
	planted := plantPath(t)
	dir := filepath.Join(t.TempDir(), "gathered")
	out, err := osexec.CommandContext(t.Context(), cluster.Plugin, "must-gather", "-o", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all := gathered(t, dir)
	pods := cluster.ManagerPods(t)
	for _, want := range []string{
		"objects/packetcaptures.yaml", "objects/traces.yaml", "objects/resultaccesses.yaml", "objects/deployments.yaml", "objects/jobs.yaml", "objects/nodes.yaml",
		"objects/mutatingwebhookconfigurations-sonde.yaml", "objects/clusterroles-sonde.yaml", "objects/events.yaml", "server-version.json",
		"logs/" + pods[0].Name + "/manager.log", "logs/" + pods[1].Name + "/manager.log",
		"logs/" + cluster.AgentPod(t, pc) + "/probe.log", "logs/" + cluster.AgentPod(t, pc) + "/keeper.log",
		"logs/" + cluster.AgentPod(t, tr) + "/probe.log", "logs/" + cluster.AgentPod(t, tr) + "/keeper.log",
	} {
		if _, ok := all[want]; !ok {
			t.Errorf("found no file %s; the plugin printed\n%s", want, out)
		}
	}
	if !strings.Contains(all["objects/packetcaptures.yaml"], string(pc.UID)) {
		t.Error("found no capture, want it among the collected objects")
	}
	if !strings.Contains(all["objects/traces.yaml"], string(tr.UID)) {
		t.Error("found no trace, want it among the collected objects")
	}
	// The configuration of gates is included with its namespaces and without its path.
	hooks := all["objects/mutatingwebhookconfigurations-sonde.yaml"]
	for _, want := range []string{"name: " + platformcontroller.PodConfigurationName, "- " + ns, "path: " + webhookpath.Gate + "/REDACTED"} {
		if !strings.Contains(hooks, want) {
			t.Errorf("found no %q in the webhook configurations:\n%s", want, hooks)
		}
	}
	secret := secretsOf(t)
	for name, content := range all {
		for what, value := range secret {
			if strings.Contains(content, value) {
				t.Errorf("found %s in %s, want it left out", what, name)
			}
		}
		if strings.Contains(content, "PRIVATE KEY") {
			t.Errorf("found a private key in %s, want it left out", name)
		}
	}
	// The control: an event that quotes the webhook's path, as errors of the API server do, is included without the
	// path.
	if cut, _, _ := strings.Cut(planted, secret["the webhook's path"]); !strings.Contains(all["objects/events.yaml"], cut+"REDACTED") {
		t.Error("the event that quotes the webhook's path is missing in objects/events.yaml, or still contains the path")
	}
	for i := range pods {
		if strings.Contains(fullLog(t, &pods[i]), secret["the webhook's path"]) {
			t.Errorf("the log of %s holds the webhook's path", pods[i].Name)
		}
	}
}

// plantPath creates an event in the operator's namespace that quotes the webhook's path, and returns the path.
func plantPath(t *testing.T) string {
	t.Helper()
	var hook admissionregistrationv1.MutatingWebhookConfiguration
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Name: platformcontroller.ConfigurationName}, &hook); err != nil {
		t.Fatal(err)
	}
	path := *hook.Webhooks[0].ClientConfig.Service.Path
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, GenerateName: "planted-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: cluster.OperatorNamespace, Name: "sonde-webhook"},
		Reason:         "Planted", Type: corev1.EventTypeWarning, Message: "Post https://sonde-webhook" + path + ": EOF",
	}
	if err := cluster.Admin.Create(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), event) })
	return path
}

// gathered returns the collected files by name.
func gathered(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		all[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// secretsOf returns the texts that must not appear anywhere, by description.
func secretsOf(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	var secrets corev1.SecretList
	if err := cluster.Admin.List(t.Context(), &secrets, client.InNamespace(cluster.OperatorNamespace)); err != nil {
		t.Fatal(err)
	}
	for i := range secrets.Items {
		for key, value := range secrets.Items[i].Data {
			if strings.HasSuffix(key, ".crt") {
				continue // certificates are public; the webhook's configuration contains one
			}
			what := secrets.Items[i].Name + "/" + key
			found[what], found[what+" in base64"] = string(value), base64.StdEncoding.EncodeToString(value)
		}
	}
	var hook admissionregistrationv1.MutatingWebhookConfiguration
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Name: "sonde"}, &hook); err != nil {
		t.Fatal(err)
	}
	path := *hook.Webhooks[0].ClientConfig.Service.Path
	found["the webhook's path"] = path[strings.LastIndex(path, "/")+1:]
	var captures sondev1.PacketCaptureList
	var traces sondev1.TraceList
	var accesses sondev1.ResultAccessList
	for _, list := range []client.ObjectList{&captures, &traces, &accesses} {
		if err := cluster.Admin.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	for i := range captures.Items {
		found["the stamp of "+captures.Items[i].Name] = captures.Items[i].Annotations[sondev1.AnnotationStamp]
	}
	for i := range traces.Items {
		found["the stamp of trace "+traces.Items[i].Name] = traces.Items[i].Annotations[sondev1.AnnotationStamp]
	}
	for i := range accesses.Items {
		found["the stamp of "+accesses.Items[i].Name] = accesses.Items[i].Annotations[sondev1.AnnotationStamp]
		found["the hash of "+accesses.Items[i].Name] = accesses.Items[i].Spec.TokenHash
	}
	for what, value := range found {
		if len(value) < 16 {
			t.Fatalf("%s is %q: too short to search for", what, value)
		}
	}
	return found
}

// fullLog returns the log of one replica, unfiltered.
func fullLog(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	cs, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	log, err := cs.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).Stream(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	b, err := io.ReadAll(log)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
