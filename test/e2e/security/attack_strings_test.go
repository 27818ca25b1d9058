//go:build e2e

package security

import (
	"context"
	"encoding/json"
	"fmt"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// token is part of each hostile string, so that the test finds it wherever it appears.
const token = "pwn7"

// hostile strings, by what they would do to a careless reader.
var hostile = map[string]string{
	"flag":      "--config=/" + token,
	"shell":     "$(touch /" + token + ")",
	"backticks": "`touch " + token + "`",
	"command":   "; touch /" + token,
	"variable":  "$(POD_NAME)" + token,
	"path":      "../../../" + token,
	"template":  "{{.Env}}" + token,
	"escape":    "\x1b]0;" + token + "\x07\x1b[2J",
	"newline":   token + "\n--pod-name\nx",
	"nul":       token + "\x00",
	"direction": token + "\u202egpj",
	"format":    "%s%n%d" + token,
	"quote":     `'"` + token,
	"long":      strings.Repeat(token, 50_000),
	"json":      `","uid":"` + token,
}

// In every string field each hostile string is either refused with a message or harmless: it never becomes an argument,
// a file name, or an escape sequence on a terminal.
func TestAttackHostileStrings(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	d := cluster.Deployment(t, ns, "sink", 1, "sink")
	cluster.Bind(t, ns, "mallory", "admin")
	mallory := cluster.As(t, "mallory")
	var admitted []*unstructured.Unstructured
	refused := 0
	for field, set := range hostileFields {
		for kind, evil := range hostile {
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": sondev1.GroupVersion.String(), "kind": "PacketCapture",
				"metadata": map[string]any{"namespace": ns, "generateName": "cap-"},
				"spec":     map[string]any{"targetDeployment": "sink", "duration": "10m", "filter": "udp"},
			}}
			set(o, evil)
			sent := o.DeepCopy()
			err := mallory.Create(t.Context(), o, client.DryRunAll)
			if err == nil {
				admitted = append(admitted, sent)
				continue
			}
			refused++
			if said := err.Error(); len(said) > 8<<10 && kind != "long" || strings.ContainsFunc(said, func(r rune) bool { return r == 0x1b || r == 0 }) {
				t.Errorf("%s in %s: refused with a message of %d bytes, want a short one without escapes: %.300q", kind, field, len(said), said)
			}
		}
	}
	t.Logf("%d refused, %d admitted", refused, len(admitted))
	if refused == 0 || len(admitted) == 0 {
		t.Fatal("want some refused and some admitted; otherwise half of the test does nothing")
	}
	t.Run("protected: what was admitted is inert", func(t *testing.T) {
		all := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": sondev1.GroupVersion.String(), "kind": "PacketCapture",
			"metadata": map[string]any{"namespace": ns, "generateName": "cap-"},
			"spec":     map[string]any{"targetDeployment": "sink", "duration": "10m", "filter": "udp"},
		}}
		for _, o := range admitted {
			merge(all.Object, o.Object)
		}
		if err := mallory.Create(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		pc := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: all.GetName()}}
		t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), pc) })
		cluster.AwaitCapturing(t, pc)
		wantInert(t, pc, cluster.ReadyPods(t, d, 1)[0].Name)
	})
	t.Run("control: as an argument", func(t *testing.T) {
		pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
		job := cloneWith(t, pc, func(spec *corev1.PodSpec) { spec.Containers[0].Args = append(spec.Containers[0].Args, hostile["flag"]) })
		wantMessage(t, job, "open /"+token)
	})
	t.Run("control: through a shell", func(t *testing.T) {
		p := cluster.Pod(t, ns, "shell", cluster.ShellSpec())
		if _, err := cluster.Exec(t.Context(), p, "sh", "-c", "cd /tmp && echo "+strings.ReplaceAll(hostile["shell"], "/", "/tmp/")); err != nil {
			t.Fatal(err)
		}
		if out, err := cluster.Exec(t.Context(), p, "ls", "/tmp"); err != nil || !strings.Contains(out, token) {
			t.Errorf("%q (%v): want the string to have an effect", out, err)
		}
	})
}

// hostileFields are the fields and metadata of a PacketCapture that hold a string.
var hostileFields = map[string]func(o *unstructured.Unstructured, evil string){
	"name":         func(o *unstructured.Unstructured, evil string) { o.SetName(evil) },
	"generateName": func(o *unstructured.Unstructured, evil string) { o.SetGenerateName(evil) },
	"a label": func(o *unstructured.Unstructured, evil string) {
		o.SetLabels(map[string]string{sondev1.LabelAppInstance: evil})
	},
	"a label's key": func(o *unstructured.Unstructured, evil string) { o.SetLabels(map[string]string{evil: "x"}) },
	"an annotation": func(o *unstructured.Unstructured, evil string) { o.SetAnnotations(map[string]string{"e2e/x": evil}) },
	"the stamp": func(o *unstructured.Unstructured, evil string) {
		o.SetAnnotations(map[string]string{sondev1.AnnotationRequester: evil, sondev1.AnnotationStamp: evil})
	},
	"jobId":            spec("jobId"),
	"targetNamespace":  spec("targetNamespace"),
	"targetDeployment": spec("targetDeployment"),
	"targetRef.name": func(o *unstructured.Unstructured, evil string) {
		unstructured.RemoveNestedField(o.Object, "spec", "targetDeployment")
		_ = unstructured.SetNestedField(o.Object, map[string]any{"kind": "Deployment", "name": evil}, "spec", "targetRef")
	},
	"targetRef.kind": func(o *unstructured.Unstructured, evil string) {
		unstructured.RemoveNestedField(o.Object, "spec", "targetDeployment")
		_ = unstructured.SetNestedField(o.Object, map[string]any{"kind": evil, "name": "sink"}, "spec", "targetRef")
	},
	"duration":  spec("duration"),
	"retainFor": spec("retainFor"),
	"filter":    spec("filter"),
	"filter, after what compiles": func(o *unstructured.Unstructured, evil string) {
		spec("filter")(o, "udp "+evil)
	},
	"interfaces": func(o *unstructured.Unstructured, evil string) {
		_ = unstructured.SetNestedStringSlice(o.Object, []string{"eth0", evil}, "spec", "interfaces")
	},
	"interfaces, cut to fit": func(o *unstructured.Unstructured, evil string) {
		_ = unstructured.SetNestedStringSlice(o.Object, []string{"eth0", strings.ReplaceAll(evil, " ", "")[:min(15, len(strings.ReplaceAll(evil, " ", "")))]}, "spec", "interfaces")
	},
}

func spec(field string) func(o *unstructured.Unstructured, evil string) {
	return func(o *unstructured.Unstructured, evil string) {
		_ = unstructured.SetNestedField(o.Object, evil, "spec", field)
	}
}

// merge adds another object's values to an object: lists are joined, the longer of two texts is kept, and all
// annotations are kept.
func merge(into, from map[string]any) {
	for key, value := range from {
		switch v := value.(type) {
		case map[string]any:
			if into[key] == nil {
				into[key] = map[string]any{}
			}
			merge(into[key].(map[string]any), v)
		case []any:
			list, _ := into[key].([]any)
			for _, item := range v {
				if !slices.Contains(list, item) && len(list) < 16 {
					list = append(list, item)
				}
			}
			into[key] = list
		case string:
			if old, ok := into[key].(string); ok && strings.HasPrefix(key, "e2e/") && len(v)+len(old) < 200<<10 {
				into[fmt.Sprint(key, len(into))] = v
			} else if !ok || strings.Contains(v, token) && len(v) > len(old) && key != "kind" {
				into[key] = v
			}
		}
	}
}

// wantInert searches for the hostile strings everywhere a capture could put them.
func wantInert(t *testing.T, pc *sondev1.PacketCapture, target string) {
	t.Helper()
	job := cluster.JobsOf(t, pc)[0]
	for _, c := range job.Spec.Template.Spec.Containers {
		if all := fmt.Sprint(c.Command, c.Args, c.Env); strings.Contains(all, token) || strings.Contains(all, "$(") {
			t.Errorf("container %s has the user's text or a variable in its command, arguments or environment: %s", c.Name, all)
		}
	}
	// The Job copies only five labels and names from the user. The probe's configuration is in the ConfigMap.
	text, err := json.Marshal(job.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), token) {
		t.Errorf("the Job's spec contains the user's text, want it only in labels: %s", text)
	}
	agent := cluster.AgentPod(t, pc)
	var p corev1.Pod
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: agent}, &p); err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(cluster.OnNode(t, p.Spec.NodeName, "ls", "-A", "/var/lib/kubelet/pods/"+string(p.UID)+"/volumes/kubernetes.io~empty-dir/results"))
	slices.Sort(files)
	want := []string{"progress.json", target + "-" + pc.Status.JobID + ".pcapng"}
	slices.Sort(want)
	if !slices.Equal(files, want) {
		t.Errorf("files %q in the volume, want %q", files, want)
	}
	for _, args := range [][]string{{"get", "-n", pc.Namespace}, {"get", pc.Name, "-n", pc.Namespace, "-o", "wide"}} {
		out, err := osexec.CommandContext(t.Context(), cluster.Plugin, args...).CombinedOutput()
		if err != nil || strings.ContainsFunc(string(out), func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) {
			t.Errorf("kubectl sonde %s (%v): got unprintable characters: %q", args, err, out)
		}
	}
	cluster.Stop(t, pc)
	if got := cluster.Download(t, pc); len(got) != 1 { // tshark and capinfos read the file without a warning
		t.Errorf("got %d files, want 1", len(got))
	}
}
