//go:build e2e

package security

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// quickCapture captures numbered packets of one Pod and compares the file with the packets sent.
func quickCapture(t *testing.T) *sondev1.PacketCapture {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	pods := cluster.ReadyPods(t, cluster.Deployment(t, ns, "sink", 1, "sink"), 1)
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp"})
	cluster.Send(t, sender, cluster.UDPAddr(pods[0].Status.PodIP), 1, 1000)
	cluster.AwaitProgress(t, pc, pods[0].Name, 1000)
	cluster.Stop(t, pc)
	if pc.Status.Phase != sondev1.PhaseCompleted {
		t.Errorf("phase %s, want Completed; pods %+v", pc.Status.Phase, pc.Status.Pods)
	}
	if different, n := cluster.Download(t, pc)[pods[0].Name].Count(1); different != 1000 || n != 1000 {
		t.Errorf("got %d numbers in %d packets, want 1000", different, n)
	}
	return pc
}

// With only the capabilities that it needs, a probe captures and accounts for every packet. It has no other capability.
func TestPrivilegeCapabilitiesCaptures(t *testing.T) {
	cluster.ProbePrivilege(t, privilege.Capabilities)
	quickCapture(t)
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"})
	want := uint64(0)
	for _, c := range privilege.Needed(false) {
		want |= 1 << c.Bit
	}
	node := pc.Status.Pods[0].Node
	status := cluster.OnNode(t, node, "sh", "-c", "cat /proc/$(pgrep -f '^/agent probe .*"+string(pc.UID)+"')/status")
	for _, line := range []string{fmt.Sprintf("CapEff:\t%016x", want), fmt.Sprintf("CapBnd:\t%016x", want), "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, line) {
			t.Errorf("the status of the probe's process has no line %q:\n%s", line, status)
		}
	}
}

// A Job like the manager's, without one of the capabilities, ends at once with a message that names the capability.
func TestPrivilegeEachCapabilityIsNeeded(t *testing.T) {
	cluster.ProbePrivilege(t, privilege.Capabilities)
	original := runningJob(t)
	for _, c := range privilege.Needed(false) {
		t.Run(c.Name, func(t *testing.T) {
			j := cloneJob(original, "without-"+strings.ToLower(strings.ReplaceAll(c.Name, "_", "-")))
			caps := j.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities
			caps.Add = slices.DeleteFunc(caps.Add, func(n corev1.Capability) bool { return string(n) == c.Name })
			cluster.Create(t, j)
			message := containerEnd(t, j, captureconfig.ContainerProbe)
			if !strings.Contains(message, "the probe lacks "+c.Name+" (to "+c.For+")") || !strings.Contains(message, "sonde-probe") {
				t.Errorf("the probe's termination message is %s, want the missing capability", message)
			}
		})
	}
	t.Run("control: none missing", func(t *testing.T) {
		j := cloneJob(original, "with-all")
		cluster.Create(t, j)
		containerRuns(t, j, captureconfig.ContainerProbe)
	})
}

// The keeper checks from inside that it has none of its Pod's privileges.
func TestPrivilegeKeeperRefusesToRunUnconfined(t *testing.T) {
	cluster.AwaitSetting(t.Context(), t, privilege.Privileged)
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
		"a shared user": {func(_ *corev1.PodSpec, k *corev1.Container) {
			k.SecurityContext.RunAsUser = new(int64(65532))
		}, "it runs as user 65532, which other Pods may have"},
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
			cluster.Create(t, j)
			message := containerEnd(t, j, captureconfig.ContainerKeeper)
			if !strings.Contains(message, "the keeper refuses to run unconfined") || !strings.Contains(message, tc.want) {
				t.Errorf("the keeper's termination message is %s, want %q in it", message, tc.want)
			}
		})
	}
	t.Run("control: as the manager makes it", func(t *testing.T) {
		j := cloneJob(original, "keeper-confined")
		cluster.Create(t, j)
		containerRuns(t, j, captureconfig.ContainerProbe)
		containerRuns(t, j, captureconfig.ContainerKeeper)
	})
}

// runningJob returns the Job of a running capture.
func runningJob(t *testing.T) *batchv1.Job {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	var j batchv1.Job
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: pc.Status.Pods[0].Job}, &j); err != nil {
		t.Fatal(err)
	}
	return &j
}

// cloneJob returns the same Job under another name, which the manager does not know.
func cloneJob(original *batchv1.Job, name string) *batchv1.Job {
	spec := original.Spec.DeepCopy()
	spec.Selector, spec.ManualSelector = nil, nil
	spec.Template.Labels = nil
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: original.Namespace, Name: name}, Spec: *spec}
}

// containerEnd waits until a container of the Job's Pod has failed and returns its termination message.
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

// containerRuns waits until a container of the Job's Pod is ready: a probe that has started is attached.
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
	cluster.Eventually(t, time.Minute, container+" of Job "+j.Name, func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		for i := range p.Status.ContainerStatuses {
			if s := &p.Status.ContainerStatuses[i]; s.Name == container {
				return check(s)
			}
		}
		return fmt.Errorf("phase %s, no status of the container", p.Status.Phase)
	})
}
