//go:build e2e

package operations

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A standby replica decides on requests and serves results like the leader.
func TestOpsEveryReplicaServes(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"})
	cluster.Stop(t, pc)
	token := accessToken(t, pc)
	pods := cluster.ManagerPods(t)
	if nodes := cluster.NodeNames(t); len(nodes) > 1 && pods[0].Spec.NodeName == pods[1].Spec.NodeName {
		t.Errorf("both replicas run on node %s, want two of %v", pods[0].Spec.NodeName, nodes)
	}
	for i := range pods {
		p := &pods[i]
		if got, want := sizeAt(t, p, pc, pc.Status.Pods[0], token), pc.Status.Pods[0].Files[0].Bytes; got != want {
			t.Errorf("%s serves %d bytes, want %d as in the status", p.Name, got, want)
		}
		if a := review(t, p, ns, "sink"); !a.Allowed || len(a.Patch) == 0 {
			t.Errorf("%s refuses the capture: %+v", p.Name, a)
		}
		if a := review(t, p, ns, "no-such"); a.Allowed {
			t.Errorf("%s admits a capture whose target does not exist", p.Name)
		}
	}
}

// review sends an admission review about a capture of a Deployment to the webhook of one replica, as the API server
// would.
func review(t *testing.T, p *corev1.Pod, ns, deployment string) *admissionv1.AdmissionResponse {
	t.Helper()
	var hook admissionregistrationv1.MutatingWebhookConfiguration
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Name: "sonde"}, &hook); err != nil {
		t.Fatal(err)
	}
	pc, err := json.Marshal(&sondev1.PacketCapture{
		TypeMeta:   metav1.TypeMeta{APIVersion: sondev1.GroupVersion.String(), Kind: "PacketCapture"},
		ObjectMeta: metav1.ObjectMeta{Name: "asked", Namespace: ns},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: deployment, Duration: "30", RetainFor: "10m"},
	})
	if err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u", Kind: metav1.GroupVersionKind{Group: sondev1.GroupVersion.Group, Version: sondev1.GroupVersion.Version, Kind: "PacketCapture"},
			Namespace: ns, Name: "asked", Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{Username: "kubernetes-admin", Groups: []string{"system:masters", "kubeadm:cluster-admins"}},
			Object:   runtime.RawExtension{Raw: pc},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	cs, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cs.RESTClient().Post().AbsPath(podProxy(p, webhookPort)+*hook.Webhooks[0].ClientConfig.Service.Path).
		SetHeader("Content-Type", "application/json").Body(in).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("ask the webhook of %s: %v\n%s", p.Name, err, out)
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(out, &answer); err != nil || answer.Response == nil {
		t.Fatalf("the webhook of %s answers %s (%v)", p.Name, out, err)
	}
	return answer.Response
}

// The leader is lost during a capture. Another replica takes over, and the capture is complete, with one Job per Pod.
func TestOpsLeaderLost(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *corev1.Pod){
		"deleted": func(t *testing.T, p *corev1.Pod) { t.Helper(); cluster.DeleteNow(t, p) },
		"killed":  func(t *testing.T, p *corev1.Pod) { t.Helper(); signalManager(t, p, "KILL") },
	} {
		t.Run(name, func(t *testing.T) {
			from := time.Now()
			ns := cluster.Namespace(t, nil)
			target := cluster.Deployment(t, ns, "sink", 2, "sink")
			pods := cluster.ReadyPods(t, target, 2)
			sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
			cluster.ManagerPods(t)
			pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp"})
			sendBoth := func(run uint32) {
				for i := range pods {
					cluster.Send(t, sender, cluster.UDPAddr(pods[i].Status.PodIP), run, 1000)
				}
			}
			sendBoth(1)
			was, identity := leader(t)
			lose(t, was)
			sendBoth(2)
			otherLeader(t, identity)
			sendBoth(3)
			cluster.Stop(t, pc)
			if pc.Status.Phase != sondev1.PhaseCompleted || pc.Status.Totals.Packets != 6000 || pc.Status.Totals.Dropped != 0 {
				t.Errorf("phase %s, totals %+v; want Completed, 6000 packets, none dropped", pc.Status.Phase, pc.Status.Totals)
			}
			for pod, got := range cluster.Download(t, pc) {
				for run := range uint32(3) {
					if different, n := got.Count(run + 1); different != 1000 || n != 1000 {
						t.Errorf("%s, run %d: got %d numbers in %d packets, want 1000 in 1000", pod, run+1, different, n)
					}
				}
			}
			made := 0
			for _, e := range cluster.ManagerWrites(t, from) {
				if e.Verb == "create" && e.ObjectRef.Resource == "jobs" {
					made++
				}
			}
			if made != 2 || len(cluster.JobsOf(t, pc)) != 2 {
				t.Errorf("%d Jobs were created and %d exist, want 2", made, len(cluster.JobsOf(t, pc)))
			}
			token := accessToken(t, pc)
			after := cluster.ManagerPods(t)
			for i := range after {
				e := pc.Status.Pods[0]
				if got := sizeAt(t, &after[i], pc, e, token); got != e.Files[0].Bytes {
					t.Errorf("%s serves %d bytes, want %d as in the status", after[i].Name, got, e.Files[0].Bytes)
				}
			}
		})
	}
}

// The kubelet restarts a manager that hangs, and until then another replica leads.
func TestOpsWedgedManagerIsRestarted(t *testing.T) {
	cluster.ManagerPods(t)
	was, identity := leader(t)
	restarts := was.Status.ContainerStatuses[0].RestartCount
	signalManager(t, was, "STOP")
	otherLeader(t, identity)
	cluster.Eventually(t, 2*time.Minute, "restarted", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(was), was); err != nil {
			return err
		}
		if n := was.Status.ContainerStatuses[0].RestartCount; n != restarts+1 {
			return fmt.Errorf("got %d restarts, want more than %d", n, restarts)
		}
		return nil
	})
	cluster.AwaitManager(t.Context(), t)
}

// A replica that gets SIGTERM lets downloads finish and hands over the lease. It waits no longer than its grace period
// for a client that has stopped reading.
func TestOpsShutdownLetsADownloadEnd(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 1, "sink")
	p := cluster.ReadyPods(t, target, 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp"})
	cluster.Send(t, sender, cluster.UDPAddr(p.Status.PodIP), 1, 60000, "-size", "1400")
	cluster.Stop(t, pc)
	e := cluster.Entry(t, pc, p.Name)
	if e.Files[0].Bytes < 64<<20 {
		t.Fatalf("the file has %d bytes: want more than the buffers between server and client hold", e.Files[0].Bytes)
	}
	token := accessToken(t, pc)
	cluster.ManagerPods(t)
	was, identity := leader(t)
	sizeAt(t, was, pc, e, token)
	for name, tc := range map[string]struct{ readsOn bool }{"a client that reads on": {true}, "a client that does not": {}} {
		t.Run(name, func(t *testing.T) {
			cluster.ManagerPods(t)
			was, identity = leader(t)
			body, err := stream(t.Context(), was, filePath(pc, e), token)
			if err != nil {
				t.Fatal(err)
			}
			defer body.Close()
			first, err := io.CopyN(io.Discard, body, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			cluster.DeleteNow(t, was)
			if tc.readsOn {
				// Longer than the manager takes to shut down without a download.
				hold := time.NewTimer(8 * time.Second)
				defer hold.Stop()
				<-hold.C
				rest, err := io.Copy(io.Discard, body)
				if err != nil || first+rest != e.Files[0].Bytes {
					t.Errorf("got %d of %d bytes: %v", first+rest, e.Files[0].Bytes, err)
				}
			}
			before, err := lease(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			renewed := before.Spec.RenewTime
			now := otherLeader(t, identity)
			if tc.readsOn && before.Spec.HolderIdentity != nil && *before.Spec.HolderIdentity == identity {
				if d := now.Spec.AcquireTime.Sub(renewed.Time); d >= time.Duration(*before.Spec.LeaseDurationSeconds)*time.Second {
					t.Errorf("another replica leads %s after the last renewal, want sooner: the lease expired instead of being released", d)
				}
			}
			cluster.Gone(t, was, 40*time.Second)
		})
	}
}
