package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRequiredVersions(t *testing.T) {
	for name, tc := range map[string]struct {
		gomod string
		want  map[string]string
	}{
		"block and single line": {
			gomod: "module m\n\ngo 1.26.0\n\nrequire a.b/c v1.2.3\n\nrequire (\n\td.e/f v0.1.0 // indirect\n)\n",
			want:  map[string]string{"a.b/c": "v1.2.3", "d.e/f": "v0.1.0"},
		},
		"replace is no requirement": {
			gomod: "require k8s.io/api v0.36.3\nreplace (\n\tk8s.io/api => k8s.io/api v0.1.0\n\tx v0 => y v1\n)\n",
			want:  map[string]string{"k8s.io/api": "v0.36.3"},
		},
		"nothing": {gomod: "module m\n", want: map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, requiredVersions(tc.gomod)); diff != "" {
				t.Errorf("versions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLinkerFlags(t *testing.T) {
	versions := map[string]string{"k8s.io/kubernetes": "v1.36.3", containerdModule: "v2.4.2"}
	kube, err := kubeFlags(versions)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.36.3", "-X k8s.io/client-go/pkg/version.gitMajor=1", "version.gitMinor=36 ",
	} {
		if !strings.Contains(kube, want) {
			t.Errorf("flags of kube lack %q: %s", want, kube)
		}
	}
	containerd, err := containerdFlags(versions)
	if want := "-s -w -X github.com/containerd/containerd/v2/version.Version=2.4.2"; err != nil || containerd != want {
		t.Errorf("flags of containerd: %v, %q, want %q", err, containerd, want)
	}
	for name, flags := range map[string]func(map[string]string) (string, error){"kube": kubeFlags, "containerd": containerdFlags} {
		if _, err := flags(nil); err == nil {
			t.Errorf("%s: got no error, want one where go.mod requires nothing", name)
		}
	}
}

func TestCacheKey(t *testing.T) {
	a := cacheKey([]byte("ab"), []byte("c"))
	if a != cacheKey([]byte("ab"), []byte("c")) {
		t.Error("the same parts give different keys")
	}
	if a == cacheKey([]byte("a"), []byte("bc")) {
		t.Error("parts with other boundaries give the same key")
	}
	if len(a) != 16 {
		t.Errorf("key %q is not 16 digits", a)
	}
}

// TestRecipeKey changes, one after another, every input of a binary. Each change must lead to another directory in the
// store.
func TestRecipeKey(t *testing.T) {
	plain := func(map[string]string) (string, error) { return "-s", nil }
	module := map[string]string{"go.mod": "module m\n", "go.sum": "sum\n", "main.go": "package main\n"}
	type input struct {
		files     map[string]string
		binary    binary
		goVersion string
	}
	base := input{files: module, binary: binary{name: "b", module: "m", pkg: ".", ldflags: plain}, goVersion: "go1.26.8"}
	key := func(t *testing.T, in input) string {
		t.Helper()
		source := t.TempDir()
		if err := os.Mkdir(filepath.Join(source, "m"), 0o755); err != nil {
			t.Fatal(err)
		}
		for f, content := range in.files {
			if err := os.WriteFile(filepath.Join(source, "m", f), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r, err := newRecipe(in.binary, source, in.goVersion)
		if err != nil {
			t.Fatal(err)
		}
		return r.key
	}
	want := key(t, base)
	if got := key(t, base); got != want {
		t.Errorf("the same input in another directory gives %s, want %s", got, want)
	}
	for name, change := range map[string]func(*input){
		"go.mod":     func(in *input) { in.files["go.mod"] = "module other\n" },
		"go.sum":     func(in *input) { in.files["go.sum"] = "other\n" },
		"main.go":    func(in *input) { in.files["main.go"] = "package main // other\n" },
		"no go.sum":  func(in *input) { delete(in.files, "go.sum") },
		"file":       func(in *input) { in.binary.file = moduleFile{module: "m", path: "p", name: "n"} },
		"tags":       func(in *input) { in.binary.tags = "other" },
		"package":    func(in *input) { in.binary.pkg = "other" },
		"go version": func(in *input) { in.goVersion = "go1.27" },
		"ldflags": func(in *input) {
			in.binary.ldflags = func(map[string]string) (string, error) { return "-w", nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := base
			changed.files = maps.Clone(module)
			change(&changed)
			if key(t, changed) == want {
				t.Error("the key did not change")
			}
		})
	}
}

// TestBinariesOfThisCheckout makes sure that every binary's module exists and has the versions that its flags need.
func TestBinariesOfThisCheckout(t *testing.T) {
	source, err := findSource()
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]string{}
	for _, b := range allBinaries(openshift) {
		r, err := newRecipe(b, source, "go1.26.8")
		if err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
		if other, taken := stored[r.stored(layout{})]; taken {
			t.Errorf("%s and %s share a directory", b.name, other)
		}
		stored[r.stored(layout{})] = b.name
	}
}

// TestProvisionerHasVersionsOfKube keeps the provisioner's build cheap: with another version of a low module it compiles
// all of client-go again, two minutes on two cores.
func TestProvisionerHasVersionsOfKube(t *testing.T) {
	source, err := findSource()
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]map[string]string{}
	for _, module := range []string{"kube", "provisioner"} {
		gomod, err := os.ReadFile(filepath.Join(source, module, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		versions[module] = requiredVersions(string(gomod))
	}
	for module, version := range versions["provisioner"] {
		if want, shared := versions["kube"][module]; shared && version != want {
			t.Errorf("%s: %s, but kube has %s: require that, and exclude what asks for a newer one", module, version, want)
		}
	}
}

func TestSelectBinaries(t *testing.T) {
	for name, tc := range map[string]struct {
		flavour flavour
		only    []string
		want    []string
		wantErr string
	}{
		"all":          {want: []string{"kube", "etcd", "containerd", "containerd-shim-runc-v2", "ctr", "coredns", "provisioner", "pause"}},
		"all with SCC": {flavour: openshift, want: []string{"kube", "etcd", "containerd", "containerd-shim-runc-v2", "ctr", "coredns", "provisioner", "pause", "openshift-apiserver"}},
		"envtest":      {only: []string{"kube", "etcd"}, want: []string{"kube", "etcd"}},
		"module":       {only: []string{"node"}, want: []string{"containerd", "containerd-shim-runc-v2", "ctr"}},
		"unknown":      {only: []string{"kube", "docker"}, wantErr: `no binary is called "docker": choose from kube, etcd, node, coredns, provisioner, pause, and with --openshift openshift-apiserver`},
	} {
		t.Run(name, func(t *testing.T) {
			chosen, err := selectBinaries(tc.flavour, tc.only)
			checkErr(t, err, tc.wantErr)
			var got []string
			for _, b := range chosen {
				got = append(got, b.name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("binaries (-want +got):\n%s", diff)
			}
		})
	}
}

// checkErr compares an error's text; an empty want means no error.
func checkErr(t *testing.T, err error, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}
