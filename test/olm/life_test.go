//go:build olm

package olm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	platformcontroller "github.com/sonde-operator/sonde/controllers/platform"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
	"github.com/sonde-operator/sonde/test/cluster"
)

// installMethod is one version of OLM.
type installMethod interface {
	name() string
	install(t *testing.T)      // the previous version
	upgrade(t *testing.T)      // to the current one
	uninstall(t *testing.T)    // as the docs say
	leaves(object string) bool // whether an object of OLM itself remains, as the docs say
	cleanUp(t *testing.T)      // deletes what the cluster admin created for this method
	roles() map[string]string  // the rights of admin, edit and view
}

// lifecycle installs, uses, upgrades under load and uninstalls Sonde, and tests rights. Each step needs the one before.
func lifecycle(t *testing.T, m installMethod) {
	t.Helper()
	before, err := objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { scrub(t) })
	makeNamespace(t)
	timed(t, m.name()+": install of "+previous, func() { m.install(t) })
	awaitManager(t, previous)
	makeSCC(t)

	u := newUser(t)
	ended := u.capture(t, "ended", "5m")
	u.send(t, 1)
	cluster.Stop(t, ended)
	running := u.capture(t, "running", "10m")
	u.send(t, 2)
	endedBefore, jobs := ended.DeepCopy(), jobsOf(t, ended, running)

	end := u.sendUntil(t, 3)
	timed(t, m.name()+": upgrade to "+current, func() {
		m.upgrade(t)
		awaitManager(t, current)
	})
	end()
	u.send(t, 4)

	refresh(t, ended)
	if diff := cmp.Diff(endedBefore.Status, ended.Status); diff != "" {
		t.Errorf("the upgrade changed the status of a capture that had ended (-before +after):\n%s", diff)
	}
	cluster.Stop(t, running)
	u.wantComplete(t, ended, 1)
	u.wantComplete(t, running, 2, 3, 4)
	if diff := cmp.Diff(jobs, jobsOf(t, ended, running)); diff != "" {
		t.Errorf("Jobs (-before the upgrade +after):\n%s", diff)
	}

	fresh := u.capture(t, "fresh", "10m")
	u.send(t, 5)
	cluster.Stop(t, fresh)
	u.wantComplete(t, fresh, 5)
	v, b := u.volumes(t), newBackend(t)
	t.Run("rights", func(t *testing.T) { cluster.RightsMatrix(t) })
	t.Run("manager", testManagerRights)
	t.Run("roles", func(t *testing.T) { testRoleRights(t, m) })
	remove(t, m, u, v, b, before)
}

// makeNamespace creates the operator's namespace from the suggestion in the bundle, as OpenShift's console does.
func makeNamespace(t *testing.T) {
	t.Helper()
	csv, err := readCSV(previousDir())
	if err != nil {
		t.Fatal(err)
	}
	apply(t, csv.Annotations["operatorframework.io/suggested-namespace-template"])
}

// makeSCC creates the constraints that 0.1.0 needs on OpenShift and does not create itself. Without them its Jobs get
// no Pods.
func makeSCC(t *testing.T) {
	t.Helper()
	if previous != "0.1.0" {
		return
	}
	u := platform.SecurityContextConstraints(agentjob.Options{Namespace: cluster.OperatorNamespace})
	if err := cluster.Admin.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
}

// scrub deletes what a failed test has left, so that the next test fails only for reasons of its own.
func scrub(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	for _, what := range []string{"namespace sonde-system", "crd " + strings.Join(crds, " "), "clusterrole sonde-manager"} {
		_, _ = run(context.WithoutCancel(t.Context()), "", append([]string{"kubectl", "delete", "--ignore-not-found", "--timeout=60s"}, strings.Fields(what)...)...)
	}
}

// timed runs a step and logs how long it took.
func timed(t *testing.T, what string, step func()) {
	t.Helper()
	start := time.Now()
	step()
	t.Logf("%s: %.1f s", what, time.Since(start).Seconds())
}

// awaitManager waits until every replica of the manager runs in a version, with its webhook.
func awaitManager(t *testing.T, version string) {
	t.Helper()
	cluster.Eventually(t, 2*time.Minute, "manager "+version, func(ctx context.Context) error {
		var d appsv1.Deployment
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: "sonde-manager"}, &d); err != nil {
			return err
		}
		s, image := d.Status, d.Spec.Template.Spec.Containers[0].Image
		if !strings.HasSuffix(image, ":v"+version) || s.ObservedGeneration != d.Generation || s.UpdatedReplicas != *d.Spec.Replicas || s.ReadyReplicas != s.UpdatedReplicas || s.Replicas != s.UpdatedReplicas {
			return fmt.Errorf("image %s, status %+v", image, s)
		}
		var hooks admissionregistrationv1.MutatingWebhookConfiguration
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Name: platformcontroller.ConfigurationName}, &hooks); err != nil || version != current {
			return err
		}
		var key corev1.Secret
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: stamp.SecretName}, &key); err != nil {
			return err
		}
		if !webhookpath.New(key.Data["key"], clock.RealClock{}).Accepts(webhookpath.PacketCapture, *hooks.Webhooks[0].ClientConfig.Service.Path) {
			return fmt.Errorf("the webhook configuration still has the path of %s", previous)
		}
		return nil
	})
}

func refresh(t *testing.T, pc *sondev1.PacketCapture) {
	t.Helper()
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(pc), pc); err != nil {
		t.Fatal(err)
	}
}

// jobsOf returns the UIDs of the captures' Jobs by the Pod that each is for; a second Job for a Pod is an error.
func jobsOf(t *testing.T, captures ...*sondev1.PacketCapture) map[string]string {
	t.Helper()
	jobs := map[string]string{}
	for _, pc := range captures {
		var list batchv1.JobList
		if err := cluster.Admin.List(t.Context(), &list, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(pc.UID)}); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			key := pc.Name + " " + list.Items[i].Labels[sondev1.LabelTargetPodUID]
			if jobs[key] != "" {
				t.Errorf("two Jobs for %s", key)
			}
			jobs[key] = string(list.Items[i].UID)
		}
	}
	return jobs
}

// user is the admin of one namespace, with a workload that receives numbered packets.
type user struct {
	namespace    string
	name         string
	target, from *corev1.Pod
	sent         map[uint32]int // packets by run
}

func newUser(t *testing.T) *user {
	t.Helper()
	u := &user{namespace: cluster.Namespace(t, nil), name: "alice", sent: map[uint32]int{}}
	cluster.Bind(t, u.namespace, u.name, "admin")
	u.target = &cluster.ReadyPods(t, cluster.Deployment(t, u.namespace, "sink", 1, "sink"), 1)[0]
	u.from = cluster.Pod(t, u.namespace, "sender", cluster.PodSpec("idle"))
	return u
}

// capture applies a PacketCapture as the user, by kubectl, and returns it when its probe is attached.
func (u *user) capture(t *testing.T, name, duration string) *sondev1.PacketCapture {
	t.Helper()
	kubectl(t, fmt.Sprintf(`
apiVersion: monitoring.openshift.tpg/v1alpha1
kind: PacketCapture
metadata: {name: %s, namespace: %s}
spec: {targetDeployment: sink, filter: udp port %d, duration: %s, retainFor: 1h}
`, name, u.namespace, cluster.UDPPort, duration), "--as", u.name, "--as-group", "system:authenticated", "apply", "-f", "-")
	pc := &sondev1.PacketCapture{}
	pc.Namespace, pc.Name = u.namespace, name
	cluster.AwaitCapturing(t, pc)
	return pc
}

// runLength is the number of packets in a run, and in each part of a continued run.
const runLength = 500

// send sends a run of packets.
func (u *user) send(t *testing.T, run uint32) {
	t.Helper()
	cluster.Send(t, u.from, cluster.UDPAddr(u.target.Status.PodIP), run, runLength)
	u.sent[run] = runLength
}

// sendUntil sends a run, 500 packets a second, until the returned function is called.
func (u *user) sendUntil(t *testing.T, run uint32) (end func()) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			_, err := cluster.Exec(t.Context(), u.from, "/workload", "send", "-to", cluster.UDPAddr(u.target.Status.PodIP),
				"-run", fmt.Sprint(run), "-first", fmt.Sprint(u.sent[run]), "-count", fmt.Sprint(runLength), "-rate", fmt.Sprint(runLength))
			if err != nil {
				done <- err
				return
			}
			u.sent[run] += runLength
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
		}
	}()
	return func() {
		close(stop)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// wantComplete fetches a capture's file through the plugin and asserts that it holds each packet of these runs once,
// and that the account agrees.
func (u *user) wantComplete(t *testing.T, pc *sondev1.PacketCapture, runs ...uint32) {
	t.Helper()
	if pc.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("capture %s: phase %s, want Completed: %+v", pc.Name, pc.Status.Phase, pc.Status)
	}
	got, total := cluster.Download(t, pc)[u.target.Name], 0
	for _, run := range runs {
		want := u.sent[run]
		if different, n := got.Count(run); different != want || n != want {
			t.Errorf("capture %s, run %d: %d numbers in %d packets, want %d", pc.Name, run, different, n, want)
		}
		total += want
	}
	e := cluster.Entry(t, pc, u.target.Name)
	if got.Packets != total || e.Packets != int64(total) || e.Dropped.Total() != 0 {
		t.Errorf("capture %s: %d packets in the file, account %+v; want %d and none dropped", pc.Name, got.Packets, e, total)
	}
}
