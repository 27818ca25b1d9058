package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/nodereport"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

const namespace = "sonde-system"

func manager(change func(*corev1.Container)) *appsv1.Deployment {
	c := corev1.Container{
		Name: "manager", Image: "sonde:1", Args: []string{"--leader-elect", "--image=$(RELATED_IMAGE_SONDE)"},
		Env: []corev1.EnvVar{{Name: "RELATED_IMAGE_SONDE", Value: "mirror/sonde:1"}},
	}
	if change != nil {
		change(&c)
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: agentjob.ManagerDeployment},
		Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}},
	}
}

func aNode(name string, status corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
	}
}

// forbid returns the error of an API server that refuses a request by RBAC.
func forbid(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
}

func newDoctor(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) *Doctor {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
	return &Doctor{Client: c, Namespace: namespace, Timeout: 10 * time.Second, Poll: time.Millisecond}
}

func TestAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*corev1.Container)
		funcs   interceptor.Funcs
		want    agentjob.Options
		wantErr string
	}{
		"as installed": {want: agentjob.Options{Namespace: namespace, Image: "mirror/sonde:1"}},
		"by its own image": {
			change: func(c *corev1.Container) { c.Env, c.Args = nil, nil }, want: agentjob.Options{Namespace: namespace, Image: "sonde:1"},
		},
		"with settings": {
			change: func(c *corev1.Container) {
				c.Args = append(c.Args, "--image=own:2")
				c.Env = append(c.Env, corev1.EnvVar{Name: "SONDE_PROBE_PRIVILEGE", Value: "Capabilities"})
			},
			want: agentjob.Options{Namespace: namespace, Image: "own:2", Privilege: privilege.Capabilities},
		},
		"the command line beats": {
			change: func(c *corev1.Container) {
				c.Args = append(c.Args, "--probe-privilege=Privileged")
				c.Env = append(c.Env, corev1.EnvVar{Name: "SONDE_PROBE_PRIVILEGE", Value: "Capabilities"})
			},
			want: agentjob.Options{Namespace: namespace, Image: "mirror/sonde:1", Privilege: privilege.Privileged},
		},
		"no such setting": {
			change:  func(c *corev1.Container) { c.Args = append(c.Args, "--probe-privilege=None") },
			wantErr: `"None" is neither`,
		},
		"another's Deployment": {change: func(c *corev1.Container) { c.Name = "web" }, wantErr: "has no container manager"},
		"no right": {
			funcs: interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return forbid("deployments")
			}},
			wantErr: "you need get on deployments",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newDoctor(t, tc.funcs, manager(tc.change)).Agent(t.Context())
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if got != tc.want || err != nil {
				t.Errorf("%+v (%v), want %+v", got, err, tc.want)
			}
		})
	}
	if _, err := newDoctor(t, interceptor.Funcs{}).Agent(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "Sonde is not installed on this cluster, or in another namespace") || !strings.Contains(err.Error(), "--operator-namespace") {
		t.Errorf("without an operator: %v", err)
	}
}

func TestNodes(t *testing.T) {
	noList := interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbid("nodes")
		},
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbid("nodes")
		},
	}
	for name, tc := range map[string]struct {
		named    []string
		funcs    interceptor.Funcs
		want     []string
		wantLeft []string
		wantErr  string
	}{
		"all":                  {want: []string{"n1", "n2"}, wantLeft: []string{"n3: it is not ready"}},
		"named":                {named: []string{"n3"}, want: []string{"n3"}},
		"no such node":         {named: []string{"n1", "n9"}, wantErr: "there is no node n9"},
		"all, without a right": {funcs: noList, wantErr: "Name the nodes, or ask a cluster admin for list on nodes"},
		"named, without one":   {funcs: noList, named: []string{"n1"}, want: []string{"n1"}},
	} {
		t.Run(name, func(t *testing.T) {
			windows := aNode("w1", corev1.ConditionTrue)
			windows.Labels[corev1.LabelOSStable] = "windows"
			d := newDoctor(t, tc.funcs, aNode("n1", corev1.ConditionTrue), aNode("n2", corev1.ConditionTrue), aNode("n3", corev1.ConditionFalse), windows)
			got, left, err := d.Nodes(t.Context(), tc.named)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got) + cmp.Diff(tc.wantLeft, left); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func log(t *testing.T) []byte {
	t.Helper()
	b, err := json.Marshal(nodereport.Report{Version: nodereport.Version, Kernel: "6.12"})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// becomes sets the status of each Pod that is read, as a kubelet would.
func becomes(status corev1.PodStatus) interceptor.Funcs {
	return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		err := c.Get(ctx, key, o, opts...)
		if pod, ok := o.(*corev1.Pod); ok {
			pod.Status = status
		}
		return err
	}}
}

// The Pod is deleted, whatever its status.
func TestExamine(t *testing.T) {
	ended := func(code int32) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: "no BPF"}}},
		}}
	}
	for name, tc := range map[string]struct {
		funcs   interceptor.Funcs
		timeout time.Duration
		leave   bool
		logs    string
		wantErr string
	}{
		"well": {funcs: becomes(corev1.PodStatus{Phase: corev1.PodSucceeded})},
		"without a report": {
			funcs: becomes(corev1.PodStatus{Phase: corev1.PodSucceeded}), logs: "usage: agent", wantErr: "node n1: the agent gave no report: usage: agent",
		},
		"it fails":        {funcs: becomes(ended(1)), wantErr: "exit code 1 (Error) no BPF"},
		"an agent before": {funcs: becomes(ended(64)), wantErr: "the operator is older than this plugin"},
		"no image": {
			funcs: becomes(corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}}},
			}}),
			timeout: 20 * time.Millisecond, wantErr: "it did not end within 20ms: ImagePullBackOff: not found",
		},
		"no room": {
			funcs: becomes(corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no memory"},
			}}),
			timeout: 20 * time.Millisecond, wantErr: "Unschedulable: no memory",
		},
		"the user leaves": {funcs: becomes(corev1.PodStatus{Phase: corev1.PodRunning}), leave: true, wantErr: "context canceled"},
		"no right": {
			funcs: interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return forbid("pods")
			}},
			wantErr: "in namespace sonde-system you need get on deployments, create, get and delete on pods",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDoctor(t, tc.funcs)
			if tc.timeout > 0 {
				d.Timeout = tc.timeout
			}
			d.Logs = func(context.Context, string) ([]byte, error) {
				if tc.logs != "" {
					return []byte(tc.logs), nil
				}
				return log(t), nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.leave {
				time.AfterFunc(20*time.Millisecond, cancel)
			}
			r, err := d.Examine(ctx, agentjob.Options{Namespace: namespace, Image: "sonde:1"}, "n1")
			switch {
			case tc.wantErr == "" && (err != nil || r.Node != "n1" || r.Kernel != "6.12" || len(r.Conclusions) == 0):
				t.Errorf("%+v, %v", r, err)
			case tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)):
				t.Errorf("error %v, want one with %q", err, tc.wantErr)
			}
			var left corev1.PodList
			if err := d.Client.List(t.Context(), &left); err != nil || len(left.Items) > 0 {
				t.Errorf("%d Pods are left (%v)", len(left.Items), err)
			}
		})
	}
}
