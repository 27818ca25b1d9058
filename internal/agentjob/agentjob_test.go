package agentjob_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

var update = flag.Bool("update", false, "rewrite testdata/*.yaml")

var options = agentjob.Options{Namespace: "sonde-system", Image: "sonde:test", RingBytes: 32 << 20}

func TestBuild(t *testing.T) {
	most := int64(1000)
	cases := map[string]struct {
		change   func(*sondev1.PacketCapture, *corev1.Pod)
		programs map[int32]string
		duration time.Duration
		setting  privilege.Setting
		restarts bool
	}{
		"plain":             {},
		"capabilities":      {setting: privilege.Capabilities},
		"keeper comes back": {restarts: true},
		"everything set": {
			change: func(pc *sondev1.PacketCapture, pod *corev1.Pod) {
				pc.Labels = map[string]string{sondev1.LabelAppInstance: "mine", sondev1.LabelUID: "of-another", "app.kubernetes.io/component": "manager"}
				pc.Spec.TargetNamespace, pod.Namespace = "openshift-gitops", "openshift-gitops"
				pc.Spec.Filter = "tcp port 80 and host 10.0.0.1'; rm -rf /"
				pc.Spec.Interfaces = []string{"eth0", "lo"}
				pc.Spec.MaxBytes, pc.Spec.MaxPackets, pc.Spec.SnapLength = 1<<40, &most, 96
				pc.Spec.Rotate, pc.Spec.Engine = &sondev1.Rotate{MaxBytes: 1 << 36, Files: 16}, sondev1.EngineBPF
			},
			programs: map[int32]string{1: "1,6 0 0 96", 101: "1,6 0 0 0"},
			duration: 1500 * time.Millisecond,
		},
		"host network": {
			change: func(_ *sondev1.PacketCapture, pod *corev1.Pod) { pod.Spec.HostNetwork = true },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pc, pod, options := capture(), targetPod(), options
			options.Privilege, options.DiskFloor, options.KeeperRestarts = tc.setting, agentjob.DefaultDiskFloor, tc.restarts
			if tc.change != nil {
				tc.change(pc, pod)
			}
			if tc.duration == 0 {
				tc.duration = 30 * time.Second
			}
			config := agentjob.Configuration(options, pc, "qwer", "alice", tc.programs)
			configMap, err := agentjob.ConfigMap(options, pc, "shop-web", config)
			if err != nil {
				t.Fatal(err)
			}
			if read, err := captureconfig.Parse([]byte(configMap.Data[captureconfig.Key])); err != nil || cmp.Diff(config, read) != "" {
				t.Errorf("the probe reads %v (%v), want %v", read, err, config)
			}
			secret := agentjob.Secret(options, pc, "shop-web-keeper", map[string][]byte{captureconfig.SecretServerCert: []byte("cert")})
			job := agentjob.Job(options, pc, agentjob.Plan{
				Name: "web-1-qwer", ConfigMap: "shop-web", Secret: "shop-web-keeper", Pod: pod,
				Duration: tc.duration, RetainFor: time.Hour, Window: 30 * time.Second,
				KeeperUser: agentjob.KeeperUser(pc.UID, pod.UID, 0),
			})
			golden(t, name, configMap, secret, job)
		})
	}
}

// TestBuildTrace compares the objects of a Trace with golden files, and parses the configuration as the probe does.
func TestBuildTrace(t *testing.T) {
	most := int64(1000)
	for name, tc := range map[string]struct {
		change   func(*sondev1.Trace, *corev1.Pod)
		want     captureconfig.Trace
		notFound []string // of the Pod's containers
	}{
		"trace": {want: captureconfig.Trace{Groups: []string{"process", "file"}, Durations: true}},
		"trace flap": {
			change: func(tr *sondev1.Trace, _ *corev1.Pod) {
				tr.Spec.Format, tr.Spec.Events = sondev1.TraceFlap, []sondev1.TraceGroup{sondev1.TraceFile, sondev1.TraceIO}
				tr.Spec.MaxEvents, tr.Spec.MinLatency = &most, "500us"
			},
			want: captureconfig.Trace{Groups: []string{"file", "io"}, Durations: true, MinLatency: 500_000, MaxEvents: 1000, Flap: true},
		},
		"trace of some": {
			change: func(tr *sondev1.Trace, _ *corev1.Pod) {
				tr.Spec.Containers, tr.Spec.Command, tr.Spec.Children = []string{"web", "istio-proxy"}, "/usr/sbin/nginx", true
			},
			want: captureconfig.Trace{
				Groups: []string{"process", "file"}, Durations: true, Containers: []string{"web", "istio-proxy"}, Command: "/usr/sbin/nginx", Children: true,
			},
			notFound: []string{"istio-proxy"},
		},
		"trace host pid": {
			change: func(tr *sondev1.Trace, pod *corev1.Pod) {
				tr.Spec.Events, pod.Spec.HostPID = []sondev1.TraceGroup{sondev1.TraceProcess}, true
			},
			want: captureconfig.Trace{Groups: []string{"process"}}, // these events have no duration
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr, pod, options := trace(), targetPod(), options
			options.DiskFloor = agentjob.DefaultDiskFloor
			if tc.change != nil {
				tc.change(tr, pod)
			}
			config := agentjob.TraceConfiguration(options, tr, "qwer", "alice")
			if diff := cmp.Diff(&tc.want, config.Trace); diff != "" {
				t.Errorf("recorded by the probe (-want +got):\n%s", diff)
			}
			configMap, err := agentjob.ConfigMap(options, tr, "shop-web", config)
			if err != nil {
				t.Fatal(err)
			}
			if read, err := captureconfig.Parse([]byte(configMap.Data[captureconfig.Key])); err != nil || cmp.Diff(config, read) != "" {
				t.Errorf("the probe reads %v (%v), want %v", read, err, config)
			}
			secret := agentjob.Secret(options, tr, "shop-web-keeper", map[string][]byte{captureconfig.SecretServerCert: []byte("cert")})
			job := agentjob.Job(options, tr, agentjob.Plan{
				Name: "web-1-qwer", ConfigMap: "shop-web", Secret: "shop-web-keeper", Pod: pod,
				Duration: 30 * time.Second, RetainFor: time.Hour, Window: 30 * time.Second,
				KeeperUser: agentjob.KeeperUser(tr.UID, pod.UID, 0), ContainersNotFound: tc.notFound,
			})
			golden(t, name, configMap, secret, job)
		})
	}
}

// TestHostPIDIsForTraces checks that only traces get the flag: hostPID does not change whose packets a Pod has.
func TestHostPIDIsForTraces(t *testing.T) {
	pod := targetPod()
	pod.Spec.HostPID = true
	for _, k := range kind.Captures {
		args := agentjob.Job(options, k.New(), agentjob.Plan{Name: "j", Pod: pod}).Spec.Template.Spec.Containers[0].Args
		if got, want := slices.Contains(args, agentjob.FlagHostPID), k.Name == kind.Trace.Name; got != want {
			t.Errorf("%s: hostPID flag %t, want %t", k.Name, got, want)
		}
	}
}

// TestGate checks that only the probe of a gated Pod gets the flag, and the capability to signal the gate.
func TestGate(t *testing.T) {
	o := options
	o.Privilege = privilege.Capabilities
	for _, gate := range []bool{false, true} {
		probe := agentjob.Job(o, &sondev1.Trace{}, agentjob.Plan{Name: "j", Pod: targetPod(), Gate: gate}).Spec.Template.Spec.Containers[0]
		if flag, may := slices.Contains(probe.Args, agentjob.FlagGate), slices.Contains(probe.SecurityContext.Capabilities.Add, "KILL"); flag != gate || may != gate {
			t.Errorf("gate %t: flag %t, may %t", gate, flag, may)
		}
	}
}

// TestDoctor checks that a doctor has just a probe's rights, and ends by itself.
func TestDoctor(t *testing.T) {
	for _, setting := range []privilege.Setting{privilege.Privileged, privilege.Capabilities} {
		o := options
		o.Privilege = setting
		doctor := agentjob.Doctor(o, "node-a")
		probe := agentjob.Job(o, &sondev1.Trace{}, agentjob.Plan{Name: "j", Pod: targetPod(), Gate: true}).Spec.Template
		if diff := cmp.Diff(probe.Spec.Containers[0].SecurityContext, doctor.Spec.Containers[0].SecurityContext); diff != "" {
			t.Errorf("%s: rights (-probe +doctor):\n%s", setting, diff)
		}
		if diff := cmp.Diff(probe.Spec.Affinity, doctor.Spec.Affinity); diff != "" {
			t.Errorf("where (-probe +doctor):\n%s", diff)
		}
		s := doctor.Spec
		if s.ServiceAccountName != agentjob.ServiceAccount || *s.AutomountServiceAccountToken || s.HostNetwork || s.HostIPC || len(s.Volumes) > 0 ||
			s.ActiveDeadlineSeconds == nil || doctor.Annotations["openshift.io/required-scc"] != agentjob.RequiredSCC {
			t.Errorf("%s: %+v", setting, doctor)
		}
	}
}

// TestStowawayIsRestartedWhenItHangs checks that the probe asks for the health of the whole process, and not only for an open port.
func TestStowawayIsRestartedWhenItHangs(t *testing.T) {
	c := agentjob.Stowaway(options, nil, "key", "manager").Spec.Template.Spec.Containers[0]
	probe := c.LivenessProbe
	if probe == nil || probe.HTTPGet == nil {
		t.Fatalf("liveness probe %+v", probe)
	}
	if *probe.HTTPGet.Path != tunnel.PathHealth || probe.HTTPGet.Port.String() != tunnel.ClientPortName || *probe.FailureThreshold < 2 {
		t.Errorf("liveness probe %+v", probe)
	}
	if !slices.ContainsFunc(c.Ports, func(p coreac.ContainerPortApplyConfiguration) bool { return *p.Name == tunnel.ClientPortName }) {
		t.Errorf("the probe's port is not one of %+v", c.Ports)
	}
}

// TestSweep checks that a sweep has just a probe's rights, and does not count as a probe.
func TestSweep(t *testing.T) {
	for name, host := range map[string]bool{"sweep": false, "sweep host network": true} {
		t.Run(name, func(t *testing.T) {
			pod := targetPod()
			job := agentjob.Sweep(options, capture(), agentjob.SweepPlan{
				Name: "sonde-sweep-deadbeef-c0ffee00", TargetNamespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, UID: pod.UID, HostNetwork: host,
			})
			probe := agentjob.Job(options, capture(), agentjob.Plan{Name: "j", Pod: pod}).Spec.Template.Spec
			sweep := job.Spec.Template.Spec
			if diff := cmp.Diff(probe.Containers[0].SecurityContext, sweep.Containers[0].SecurityContext); diff != "" {
				t.Errorf("rights (-probe +sweep):\n%s", diff)
			}
			if sweep.ServiceAccountName != agentjob.ServiceAccount || *sweep.AutomountServiceAccountToken || sweep.HostNetwork || sweep.HostIPC || len(sweep.Volumes) > 0 {
				t.Errorf("%+v", sweep)
			}
			for _, label := range []string{sondev1.LabelUID, sondev1.LabelKind, sondev1.LabelTargetPodUID} {
				if job.Labels[label] != "" || job.Spec.Template.Labels[label] != "" {
					t.Errorf("the sweep has the label %s of a capture's Job", label)
				}
			}
			golden(t, name, job)
		})
	}
}

// TestEveryKindHasAProbe checks that the agent has a command for each kind. Otherwise all its Jobs would fail.
func TestEveryKindHasAProbe(t *testing.T) {
	for _, k := range kind.Captures {
		spec := agentjob.Job(options, k.New(), agentjob.Plan{Name: "j", Pod: targetPod()}).Spec.Template.Spec
		if command := spec.Containers[0].Args[0]; command == "" {
			t.Errorf("%s: the probe has no command", k.Name)
		}
	}
}

// TestKeeperUser checks that users lie in their range, and differ by owner, Pod and attempt.
func TestKeeperUser(t *testing.T) {
	seen := map[int64]bool{}
	for owner := range 20 {
		for pod := range 20 {
			for attempt := range 3 {
				o, p := types.UID(fmt.Sprint("owner-", owner)), types.UID(fmt.Sprint("pod-", pod))
				user := agentjob.KeeperUser(o, p, attempt)
				if user != agentjob.KeeperUser(o, p, attempt) {
					t.Error("the user of a Job changes from call to call")
				}
				if user < captureconfig.FirstKeeperUser || user >= captureconfig.FirstKeeperUser+captureconfig.KeeperUsers || user > math.MaxInt32 {
					t.Errorf("user %d is outside the range", user)
				}
				seen[user] = true
			}
		}
	}
	if len(seen) != 20*20*3 { // by chance 0.005 of them would be equal
		t.Errorf("%d different users, want %d", len(seen), 20*20*3)
	}
}

// TestPrivileges checks the rights that an update of the golden files must not change.
func TestPrivileges(t *testing.T) {
	spec := agentjob.Job(options, capture(), agentjob.Plan{Name: "j", Pod: targetPod(), Duration: time.Second, RetainFor: time.Second}).Spec.Template.Spec
	if *spec.AutomountServiceAccountToken || spec.HostNetwork || spec.HostIPC {
		t.Error("an agent's Pod has a token, or shares more than the PID namespace with its node")
	}
	keeper := spec.Containers[1]
	sc := keeper.SecurityContext
	if !*sc.RunAsNonRoot || *sc.AllowPrivilegeEscalation || !slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}) || sc.Privileged != nil {
		t.Errorf("the keeper has rights: %v", sc)
	}
	for _, v := range spec.Volumes {
		if v.HostPath != nil {
			t.Errorf("volume %s is a host path", v.Name)
		}
		if v.Secret != nil && slices.ContainsFunc(v.Secret.Items, func(i corev1.KeyToPath) bool { return i.Key == captureconfig.SecretClientKey }) {
			t.Error("the manager's key is mounted")
		}
		if v.Secret != nil && len(v.Secret.Items) == 0 {
			t.Error("the whole Secret is mounted")
		}
	}
	for _, m := range spec.Containers[0].VolumeMounts {
		if m.Name == "tls" {
			t.Error("the probe has the keeper's key")
		}
	}
}

// TestCapabilitiesSetting checks the rights that the setting promises.
func TestCapabilitiesSetting(t *testing.T) {
	o := options
	o.Privilege = privilege.Capabilities
	spec := agentjob.Job(o, capture(), agentjob.Plan{Name: "j", Pod: targetPod(), Duration: time.Second, RetainFor: time.Second}).Spec.Template.Spec
	sc := spec.Containers[0].SecurityContext
	if sc.Privileged != nil || *sc.AllowPrivilegeEscalation || !slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		!slices.Equal(sc.Capabilities.Add, []corev1.Capability{"NET_RAW", "SYS_ADMIN", "SYS_PTRACE"}) ||
		sc.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || !*sc.ReadOnlyRootFilesystem {
		t.Errorf("the probe's rights: %v", sc)
	}
	o.Privilege = privilege.Privileged
	privileged := agentjob.Job(o, capture(), agentjob.Plan{Name: "j", Pod: targetPod(), Duration: time.Second, RetainFor: time.Second}).Spec.Template.Spec
	if diff := cmp.Diff(privileged.Containers[1], spec.Containers[1]); diff != "" {
		t.Errorf("the keeper differs by the setting:\n%s", diff)
	}
}

func golden(t *testing.T, name string, objects ...client.Object) {
	t.Helper()
	var parts []string
	for _, o := range objects {
		b, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, string(b))
	}
	got := strings.Join(parts, "---\n")
	path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".yaml")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); rewrite with -update:\n%s", path, diff)
	}
}

func capture() *sondev1.PacketCapture {
	return &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Name: "pc", Namespace: "shop", UID: "c0ffee00-1111-4222-8333-444455556666"},
		Spec: sondev1.PacketCaptureSpec{
			TargetDeployment: "web", Duration: "30", SnapLength: 262144, MaxBytes: 1 << 30, RetainFor: "1h",
		},
	}
}

func trace() *sondev1.Trace {
	return &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{Name: "tr", Namespace: "shop", UID: "c0ffee00-1111-4222-8333-444455556666"},
		Spec: sondev1.TraceSpec{
			TargetDeployment: "web", Duration: "30", MaxBytes: 1 << 30, RetainFor: "1h",
			Events: []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceFile}, Format: sondev1.TraceNDJSON,
		},
	}
}

func targetPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "shop", UID: "deadbeef-1111-4222-8333-444455556666"},
		Spec:       corev1.PodSpec{NodeName: "node-a"},
	}
}
