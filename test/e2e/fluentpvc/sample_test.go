//go:build e2e

package fluentpvc

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// The sample of the source system works as it is. Its sidecar prints a line and ends, so each Pod is evicted and processed at once.
func TestFluentPVCSample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../config/samples/monitoring_v1alpha1_fluentpvc.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f := &sondev1.FluentPVC{}
	if err := yaml.UnmarshalStrict(text, f); err != nil {
		t.Fatal(err)
	}
	image := f.Spec.SidecarContainerTemplate.Image
	loadBusybox(t, image)
	createStandardClass(t)
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	cluster.Create(t, f)
	cluster.AwaitReady(t, f)
	secret := &corev1.Secret{ObjectMeta: objectMeta(ns, "some-secret"), StringData: map[string]string{"key": "value"}}
	if err := cluster.Admin.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	p := cluster.WriterPod(ns, "web", f)
	p.Spec.Containers[0] = corev1.Container{
		Name: "web", Image: image, Command: []string{"sh", "-c", "echo data > $FLUENT_PVC_MOUNT_DIR/log; cat /path/to/secret/key && exec sleep 3600"},
	}
	claim := create(t, p)
	cluster.Gone(t, p, patience)
	cluster.NoClaims(t, ns, patience)
	var events corev1.EventList // all that is left
	if err := cluster.Admin.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	completed := func(e corev1.Event) bool {
		return e.InvolvedObject.Kind == "Job" && e.InvolvedObject.Name == claim+"-1" && e.Reason == "Completed"
	}
	if !slices.ContainsFunc(events.Items, completed) {
		t.Errorf("no Event says that the finalizer Job of %s has completed", claim)
	}
}

// loadBusybox gives the cluster an image under the sample's name, because it cannot pull any.
func loadBusybox(t *testing.T, image string) {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatalf("find busybox, which make deps installs: %v", err)
	}
	archive := filepath.Join(t.TempDir(), "busybox.tar")
	args := []string{"image", "-o", archive, "--name", image, "--entrypoint", "/bin/sh"}
	for _, applet := range []string{"sh", "echo", "cat", "sleep"} {
		args = append(args, "bin/"+applet+"="+busybox)
	}
	cluster.Machine(t, args...)
	cluster.Machine(t, "load", archive)
}

// createStandardClass makes the class that the sample names, like the cluster's own.
func createStandardClass(t *testing.T) {
	t.Helper()
	shared := &storagev1.StorageClass{}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Name: cluster.StorageClass}, shared); err != nil {
		t.Fatal(err)
	}
	cluster.Create(t, &storagev1.StorageClass{
		ObjectMeta: objectMeta("", "standard"), Provisioner: shared.Provisioner, Parameters: shared.Parameters,
		ReclaimPolicy: shared.ReclaimPolicy, VolumeBindingMode: shared.VolumeBindingMode,
	})
}
