//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// probePrivilege runs the manager with a setting for the time of the test. Before and after it returns
// when a manager of that setting leads: until then the one before makes Jobs, and keeps the constraints.
func probePrivilege(t *testing.T, setting privilege.Setting) {
	t.Helper()
	t.Cleanup(func() { awaitSetting(context.WithoutCancel(t.Context()), t, privilege.Privileged) }) // after managerFlag's own
	managerFlag(t, "--probe-privilege="+string(setting))
	awaitSetting(t.Context(), t, setting)
}

// awaitSetting waits for the leader and, where the cluster has them, the constraints of a setting.
func awaitSetting(ctx context.Context, t *testing.T, setting privilege.Setting) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := settingIs(ctx, setting)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("setting %s is not in force: %v", setting, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func settingIs(ctx context.Context, setting privilege.Setting) error {
	var lease coordinationv1.Lease
	if err := admin.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "sonde-manager"}, &lease); err != nil {
		return err
	}
	name, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	var leader corev1.Pod
	if err := admin.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: name}, &leader); err != nil {
		return fmt.Errorf("leader %q: %w", name, err)
	}
	restricted := slices.Contains(leader.Spec.Containers[0].Args, "--probe-privilege="+string(privilege.Capabilities))
	if leader.DeletionTimestamp != nil || restricted != (setting == privilege.Capabilities) {
		return fmt.Errorf("%s leads, with %v", name, leader.Spec.Containers[0].Args)
	}
	live, err := liveSCC(ctx)
	switch {
	case apimeta.IsNoMatchError(err):
		return nil
	case err != nil:
		return err
	case !platform.Covers(wantedSCC(setting), live) || len(live.GetOwnerReferences()) != 1:
		return fmt.Errorf("constraints are %v", live.Object)
	}
	return nil
}

// quickCapture captures numbered packets of one Pod and compares the file with what was sent.
func quickCapture(t *testing.T) *sondev1.PacketCapture {
	t.Helper()
	ns := namespace(t, nil)
	pods := readyPods(t, deployment(t, ns, "sink", 1, "sink"), 1)
	sender := pod(t, ns, "sender", podSpec("idle"))
	pc := capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp"})
	send(t, sender, udpAddr(pods[0].Status.PodIP), 1, 1000)
	awaitProgress(t, pc, pods[0].Name, 1000)
	stop(t, pc)
	if pc.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("phase %s, pods %+v", pc.Status.Phase, pc.Status.Pods)
	}
	if different, n := download(t, pc)[pods[0].Name].Count(1); different != 1000 || n != 1000 {
		t.Errorf("%d numbers in %d packets, want 1000", different, n)
	}
	return pc
}

// With no more than the capabilities that it needs a probe captures, and every packet is accounted for;
// it has no other capability.
func TestPrivilegeCapabilitiesCaptures(t *testing.T) {
	probePrivilege(t, privilege.Capabilities)
	quickCapture(t)
	ns := namespace(t, nil)
	deployment(t, ns, "sink", 1, "sink")
	pc := capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"})
	want := uint64(0)
	for _, c := range privilege.Needed(false) {
		want |= 1 << c.Bit
	}
	node := pc.Status.Pods[0].Node
	status := onNode(t, node, "sh", "-c", "cat /proc/$(pgrep -f '^/agent probe .*"+string(pc.UID)+"')/status")
	for _, line := range []string{fmt.Sprintf("CapEff:\t%016x", want), fmt.Sprintf("CapBnd:\t%016x", want), "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, line) {
			t.Errorf("the probe's process lacks %q:\n%s", line, status)
		}
	}
}

// TestPrivilegeEachCapabilityIsNeeded: a Job like the manager's, but for one capability, ends at once with
// a message that names it.
func TestPrivilegeEachCapabilityIsNeeded(t *testing.T) {
	probePrivilege(t, privilege.Capabilities)
	original := runningJob(t)
	for _, c := range privilege.Needed(false) {
		t.Run(c.Name, func(t *testing.T) {
			j := cloneJob(original, "without-"+strings.ToLower(strings.ReplaceAll(c.Name, "_", "-")))
			caps := j.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities
			caps.Add = slices.DeleteFunc(caps.Add, func(n corev1.Capability) bool { return string(n) == c.Name })
			create(t, j)
			message := containerEnd(t, j, captureconfig.ContainerProbe)
			if !strings.Contains(message, "the probe lacks "+c.Name+" (to "+c.For+")") || !strings.Contains(message, "sonde-probe") {
				t.Errorf("the probe's last words are %s", message)
			}
		})
	}
	t.Run("control: none missing", func(t *testing.T) {
		j := cloneJob(original, "with-all")
		create(t, j)
		containerRuns(t, j, captureconfig.ContainerProbe)
	})
}

// The keeper asserts from inside that nothing of what its Pod may do is its own.
func TestPrivilegeKeeperRefusesToRunUnconfined(t *testing.T) {
	awaitSetting(t.Context(), t, privilege.Privileged)
	original := runningJob(t)
	cases := map[string]struct {
		change func(spec *corev1.PodSpec, keeper *corev1.Container)
		want   string
	}{
		"privileged": {func(_ *corev1.PodSpec, k *corev1.Container) {
			k.SecurityContext = &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0)), ReadOnlyRootFilesystem: new(true)}
		}, "it has capabilities"},
		"user 0": {func(_ *corev1.PodSpec, k *corev1.Container) {
			k.SecurityContext.RunAsNonRoot, k.SecurityContext.RunAsUser = new(false), new(int64(0))
		}, "it runs as user 0"},
		"new privileges": {func(_ *corev1.PodSpec, k *corev1.Container) {
			k.SecurityContext.AllowPrivilegeEscalation = new(true)
		}, "it may gain privileges"},
		"with a token": {func(s *corev1.PodSpec, k *corev1.Container) {
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "token", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
			k.VolumeMounts = append(k.VolumeMounts, corev1.VolumeMount{Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount/token"})
		}, "a ServiceAccount token is mounted"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			j := cloneJob(original, "keeper-"+strings.ReplaceAll(name, " ", "-"))
			spec := &j.Spec.Template.Spec
			tc.change(spec, &spec.Containers[1])
			create(t, j)
			message := containerEnd(t, j, captureconfig.ContainerKeeper)
			if !strings.Contains(message, "the keeper refuses to run unconfined") || !strings.Contains(message, tc.want) {
				t.Errorf("the keeper's last words are %s, want %q", message, tc.want)
			}
		})
	}
	t.Run("control: as the manager makes it", func(t *testing.T) {
		j := cloneJob(original, "keeper-confined")
		create(t, j)
		containerRuns(t, j, captureconfig.ContainerProbe)
		containerRuns(t, j, captureconfig.ContainerKeeper)
	})
}

// runningJob is the Job of a capture that is going on.
func runningJob(t *testing.T) *batchv1.Job {
	t.Helper()
	ns := namespace(t, nil)
	deployment(t, ns, "sink", 1, "sink")
	pc := capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	var j batchv1.Job
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: pc.Status.Pods[0].Job}, &j); err != nil {
		t.Fatal(err)
	}
	return &j
}

// cloneJob is the same Job under another name, of which the manager does not know.
func cloneJob(original *batchv1.Job, name string) *batchv1.Job {
	spec := original.Spec.DeepCopy()
	spec.Selector, spec.ManualSelector = nil, nil
	spec.Template.Labels = nil
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: original.Namespace, Name: name}, Spec: *spec}
}

// containerEnd waits until a container of the Job's Pod has failed and returns its last words.
func containerEnd(t *testing.T, j *batchv1.Job, container string) string {
	t.Helper()
	message := ""
	awaitContainer(t, j, container, func(s *corev1.ContainerStatus) error {
		if s.State.Terminated == nil || s.State.Terminated.ExitCode == 0 {
			return fmt.Errorf("state %+v", s.State)
		}
		message = s.State.Terminated.Message
		return nil
	})
	return message
}

// containerRuns waits until a container of the Job's Pod is at work: a probe that has started is attached.
func containerRuns(t *testing.T, j *batchv1.Job, container string) {
	t.Helper()
	awaitContainer(t, j, container, func(s *corev1.ContainerStatus) error {
		if s.State.Running == nil || s.Started == nil || !*s.Started {
			return fmt.Errorf("state %+v", s.State)
		}
		return nil
	})
}

func awaitContainer(t *testing.T, j *batchv1.Job, container string, check func(*corev1.ContainerStatus) error) {
	t.Helper()
	p := podOf(t, j)
	eventually(t, time.Minute, container+" of Job "+j.Name, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for i := range p.Status.ContainerStatuses {
			if s := &p.Status.ContainerStatuses[i]; s.Name == container {
				return check(s)
			}
		}
		return fmt.Errorf("phase %s, no status of it", p.Status.Phase)
	})
}
