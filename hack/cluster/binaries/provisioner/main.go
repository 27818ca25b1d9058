// Command provisioner creates the volumes of a local cluster: directories that all nodes share, as PersistentVolumes of
// type local. kubelet applies a Pod's fsGroup to them, as it does to the disks of a real cluster. It leaves a hostPath
// volume to root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const (
	// provisionerName is the provisioner that a StorageClass names.
	provisionerName = "sonde.local/shared"
	// volumeMode is the mode of the root of a new ext4 file system: only root, and a Pod's fsGroup, may write.
	volumeMode = 0o755
	// The library's own pauses of 15 s and more would slow down tests that break the cluster.
	shortestRetry = 200 * time.Millisecond
	longestRetry  = 10 * time.Second
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the API server's address and this program's certificate")
	directory := flag.String("directory", "", "directory of the volumes; every node has it at the same path")
	flag.Parse()
	if err := run(*kubeconfig, *directory); err != nil {
		fmt.Fprintln(os.Stderr, "provisioner:", err)
		os.Exit(1)
	}
}

// run provisions volumes until the process gets a signal to stop.
func run(kubeconfig, directory string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	// Unlimited: the default of 5 requests per second delays a test with many claims.
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	v, err := openVolumes(directory)
	if err != nil {
		return err
	}
	defer v.root.Close()
	controller.NewProvisionController(ctx, client, provisionerName, v,
		// The cluster starts only one.
		controller.LeaderElection(false),
		// A PersistentVolume that is deleted before its claim stays until its directory is gone.
		controller.AddFinalizer(true),
		controller.RateLimiter(retries()),
		controller.CreateProvisionedPVLimiter(retries()),
		// Never give up, because tests stop the API server for long.
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
	).Run(ctx)
	return nil
}

func retries() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](shortestRetry, longestRetry)
}

// volumes are the directories of all PersistentVolumes, each with the name of its PersistentVolume.
type volumes struct {
	directory string
	// root opens nothing outside the directory, not even through a symbolic link.
	root *os.Root
}

var _ controller.Provisioner = &volumes{}

func openVolumes(directory string) (*volumes, error) {
	if !filepath.IsAbs(directory) {
		return nil, fmt.Errorf("--directory %q: must be an absolute path, which nodes have too", directory)
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("open the directory of volumes: %w", err)
	}
	return &volumes{directory: directory, root: root}, nil
}

// Provision makes the directory of a new PersistentVolume. It may be called again for the same one.
func (v *volumes) Provision(
	_ context.Context, o controller.ProvisionOptions,
) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	if err := unsupported(o.PVC); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if err := v.make(o.PVName); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("make the directory of volume %s: %w", o.PVName, err)
	}
	return v.persistentVolume(o), controller.ProvisioningFinished, nil
}

// unsupported returns an error if a new directory cannot be what the claim asks for.
func unsupported(claim *corev1.PersistentVolumeClaim) error {
	switch {
	case claim.Spec.Selector != nil:
		return errors.New("the claim has a selector, and new volumes have no labels: remove the selector")
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return errors.New("the claim has a data source, and new volumes are empty: remove the data source")
	}
	return nil
}

func (v *volumes) make(name string) error {
	if err := v.root.Mkdir(name, volumeMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Mkdir obeys the umask of the user who started the cluster.
	return v.root.Chmod(name, volumeMode)
}

func (v *volumes) path(name string) string { return filepath.Join(v.directory, name) }

func (v *volumes) persistentVolume(o controller.ProvisionOptions) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: o.PVC.Spec.AccessModes,
			// The size is a promise only: a directory has no limit.
			Capacity:     corev1.ResourceList{corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			MountOptions: o.StorageClass.MountOptions,
			NodeAffinity: everyNode(),
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: v.path(o.PVName)},
			},
		},
	}
	if policy := o.StorageClass.ReclaimPolicy; policy != nil {
		pv.Spec.PersistentVolumeReclaimPolicy = *policy
	}
	return pv
}

// everyNode is the affinity that a local volume must have. All nodes of the cluster match it.
func everyNode() *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"},
		}},
	}}}}
}

// Delete removes the directory of a released PersistentVolume. Anyone who may create a PersistentVolume chooses its
// path, so a path that Provision has not chosen is an error.
func (v *volumes) Delete(_ context.Context, pv *corev1.PersistentVolume) error {
	if pv.Spec.Local == nil || pv.Spec.Local.Path != v.path(pv.Name) {
		return fmt.Errorf("volume %s is not the directory %s, so this provisioner did not make it: delete its content and the PersistentVolume yourself", pv.Name, v.path(pv.Name))
	}
	if err := v.root.RemoveAll(pv.Name); err != nil {
		return fmt.Errorf("remove the directory of volume %s: %w", pv.Name, err)
	}
	return nil
}
