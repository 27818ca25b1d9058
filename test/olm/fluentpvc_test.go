//go:build olm

package olm

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// volumes has a Pod that runs with a volume.
type volumes struct{ pod *corev1.Pod }

// volumes takes a volume through its whole life under the current version, and leaves another with a Pod that runs.
func (u *user) volumes(t *testing.T) volumes {
	t.Helper()
	cluster.AllowFluentPVC(t, u.namespace)
	f := cluster.FluentPVC(t, u.namespace, nil)
	ended := cluster.WriterPod(u.namespace, "ended", f, "-stay")
	cluster.Create(t, ended)
	cluster.AwaitBinding(t, u.namespace, cluster.ClaimOf(t, ended), sondev1.BindingReady, time.Minute)
	running := cluster.WriterPod(u.namespace, "running", f, "-stay")
	cluster.DeleteNow(t, ended)
	cluster.NoClaims(t, u.namespace, 2*time.Minute)
	cluster.Create(t, running)
	cluster.AwaitBinding(t, u.namespace, cluster.ClaimOf(t, running), sondev1.BindingReady, time.Minute)
	return volumes{running}
}

// delete deletes the Pod and its claim, as its user may when Sonde is gone.
func (v volumes) delete(t *testing.T) {
	t.Helper()
	cluster.DeleteNow(t, v.pod)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: v.pod.Namespace, Name: cluster.ClaimOf(t, v.pod)}}
	cluster.DeleteNow(t, claim)
	cluster.Gone(t, claim, time.Minute)
}

// isVolume reports whether an object is the volume of a claim, whose life the claim decides.
func isVolume(object string) bool { return strings.HasPrefix(object, "persistentvolumes ") }
