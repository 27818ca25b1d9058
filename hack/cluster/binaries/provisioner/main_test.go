package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func testVolumes(t *testing.T) *volumes {
	t.Helper()
	v, err := openVolumes(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.root.Close() })
	return v
}

// wanted is a claim of 10Mi with a StorageClass that keeps volumes.
func wanted() controller.ProvisionOptions {
	retain := corev1.PersistentVolumeReclaimRetain
	return controller.ProvisionOptions{
		PVName:       "pvc-1",
		StorageClass: &storagev1.StorageClass{ReclaimPolicy: &retain, MountOptions: []string{"noatime"}},
		PVC: &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")}},
		}},
	}
}

func TestProvision(t *testing.T) {
	v := testVolumes(t)
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			MountOptions:                  []string{"noatime"},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/os", Operator: "In", Values: []string{"linux"}}},
			}}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: filepath.Join(v.directory, "pvc-1")}},
		},
	}
	for _, call := range []string{"first", "repeated"} {
		got, state, err := v.Provision(t.Context(), wanted())
		if err != nil || state != controller.ProvisioningFinished {
			t.Fatalf("%s call: %s, %v", call, state, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s call (-want +got):\n%s", call, diff)
		}
		if info, err := os.Stat(want.Spec.Local.Path); err != nil || info.Mode() != fs.ModeDir|0o755 {
			t.Errorf("%s call: mode of the directory: %v, %v", call, info, err)
		}
	}
}

func TestProvisionRefuses(t *testing.T) {
	for name, change := range map[string]func(*controller.ProvisionOptions){
		"selector":        func(o *controller.ProvisionOptions) { o.PVC.Spec.Selector = &metav1.LabelSelector{} },
		"data source":     func(o *controller.ProvisionOptions) { o.PVC.Spec.DataSource = &corev1.TypedLocalObjectReference{} },
		"data source ref": func(o *controller.ProvisionOptions) { o.PVC.Spec.DataSourceRef = &corev1.TypedObjectReference{} },
		"name outside":    func(o *controller.ProvisionOptions) { o.PVName = "../outside" },
	} {
		t.Run(name, func(t *testing.T) {
			v, o := testVolumes(t), wanted()
			change(&o)
			if pv, _, err := v.Provision(t.Context(), o); err == nil {
				t.Errorf("got %v", pv)
			}
			for _, dir := range []string{v.directory, filepath.Dir(v.directory)} {
				if entries, err := os.ReadDir(dir); err != nil || len(entries) > 1 || (dir == v.directory && len(entries) > 0) {
					t.Errorf("in %s: %v, %v", dir, entries, err)
				}
			}
		})
	}
}

func TestDelete(t *testing.T) {
	v := testVolumes(t)
	pv, _, err := v.Provision(t.Context(), wanted())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pv.Spec.Local.Path, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{"first", "repeated"} {
		if err := v.Delete(t.Context(), pv); err != nil {
			t.Errorf("%s call: %v", call, err)
		}
		if _, err := os.Stat(pv.Spec.Local.Path); err == nil {
			t.Errorf("%s call: the directory is left", call)
		}
	}
}

// TestDeleteStaysInside deletes volumes whose name, path or content lead to a file outside.
func TestDeleteStaysInside(t *testing.T) {
	for name, tc := range map[string]struct {
		volume string
		// path is the volume's; by default the directory of its name.
		path    string
		wantErr bool
	}{
		"link":         {volume: "pvc-link"},
		"link within":  {volume: "pvc-content"},
		"path":         {volume: "pvc-1", path: "/", wantErr: true},
		"name":         {volume: "../outside", wantErr: true},
		"through link": {volume: "pvc-link/file", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			v, outside := testVolumes(t), t.TempDir()
			kept := filepath.Join(outside, "file")
			content := filepath.Join(v.directory, "pvc-content")
			for _, err := range []error{
				os.WriteFile(kept, nil, 0o600), os.Symlink(outside, filepath.Join(v.directory, "pvc-link")),
				os.Mkdir(content, 0o755), os.Symlink(outside, filepath.Join(content, "link")),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			path := tc.path
			if path == "" {
				path = v.path(tc.volume)
			}
			err := v.Delete(t.Context(), &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: tc.volume},
				Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}},
			})
			if (err != nil) != tc.wantErr {
				t.Errorf("got error %v, want one: %t", err, tc.wantErr)
			}
			if _, err := os.Stat(kept); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDeleteRefusesOtherVolumes deletes a volume that is no directory.
func TestDeleteRefusesOtherVolumes(t *testing.T) {
	if err := testVolumes(t).Delete(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}}); err == nil {
		t.Error("got no error")
	}
}

func TestOpenVolumesRefusesRelativePath(t *testing.T) {
	if _, err := openVolumes("."); err == nil {
		t.Error("got no error")
	}
}
