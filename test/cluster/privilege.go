package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	securityv1 "github.com/openshift/api/security/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// ProbePrivilege runs the manager with a privilege setting until the test ends. It returns when a manager with that
// setting leads; the end of the test waits too. Until then the previous leader creates Jobs and keeps its own
// SecurityContextConstraints.
func ProbePrivilege(t *testing.T, setting privilege.Setting) {
	t.Helper()
	t.Cleanup(func() { AwaitSetting(context.WithoutCancel(t.Context()), t, privilege.Privileged) }) // runs after the cleanup of ManagerFlag
	ManagerFlag(t, "--probe-privilege="+string(setting))
	AwaitSetting(t.Context(), t, setting)
}

// AwaitSetting waits until the leader and the SecurityContextConstraints, where the cluster has them, follow a setting.
func AwaitSetting(ctx context.Context, t *testing.T, setting privilege.Setting) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := SettingIs(ctx, setting)
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

// SettingIs returns an error unless a manager with this privilege setting leads.
func SettingIs(ctx context.Context, setting privilege.Setting) error {
	var lease coordinationv1.Lease
	if err := Admin.Get(ctx, client.ObjectKey{Namespace: OperatorNamespace, Name: "sonde-manager"}, &lease); err != nil {
		return err
	}
	name, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	var leader corev1.Pod
	if err := Admin.Get(ctx, client.ObjectKey{Namespace: OperatorNamespace, Name: name}, &leader); err != nil {
		return fmt.Errorf("leader %q: %w", name, err)
	}
	restricted := slices.Contains(leader.Spec.Containers[0].Args, "--probe-privilege="+string(privilege.Capabilities))
	if leader.DeletionTimestamp != nil || restricted != (setting == privilege.Capabilities) {
		return fmt.Errorf("%s leads with arguments %v, want setting %s", name, leader.Spec.Containers[0].Args, setting)
	}
	live, err := LiveSCC(ctx)
	switch {
	case apimeta.IsNoMatchError(err):
		return nil
	case err != nil:
		return err
	case !platform.Covers(WantedSCC(setting), live) || len(live.GetOwnerReferences()) != 1:
		return fmt.Errorf("SecurityContextConstraints are %v, want setting %s and one owner", live.Object, setting)
	}
	return nil
}

// WantedSCC returns the SecurityContextConstraints that the operator keeps for a setting.
func WantedSCC(setting privilege.Setting) *unstructured.Unstructured {
	return platform.SecurityContextConstraints(agentjob.Options{Namespace: OperatorNamespace, Privilege: setting})
}

// LiveSCC reads the agents' SecurityContextConstraints from the cluster.
func LiveSCC(ctx context.Context) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(securityv1.GroupVersion.WithKind("SecurityContextConstraints"))
	return u, Admin.Get(ctx, client.ObjectKey{Name: agentjob.RequiredSCC}, u)
}
