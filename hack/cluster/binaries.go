package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// binary is one program of the cluster, built from the Go module in binaries/<module>.
type binary struct {
	name string
	// module is the directory below binaries/ whose go.mod pins all versions.
	module string
	// pkg is the package to build: "." or the import path of a dependency.
	pkg  string
	tags string
	// ldflags returns the linker flags; required are the versions in go.mod.
	ldflags func(required map[string]string) (string, error)
	// links are the names of the binary in the set.
	links []string
	// file is a file of a required module that is stored beside the binary, if any.
	file moduleFile
}

// moduleFile is a file of a Go module in the version that go.mod requires. name is its name in the store and in the
// set.
type moduleFile struct{ module, path, name string }

const (
	containerdTags   = "no_btrfs no_devmapper no_zfs"
	containerdModule = "github.com/containerd/containerd/v2"
)

// sccCRD is the file in the set that defines SecurityContextConstraints.
const sccCRD = "securitycontextconstraints.crd.yaml"

// allBinaries are the programs of a cluster, the slowest build first.
func allBinaries(f flavour) []binary {
	all := plainBinaries()
	if f != openshift {
		return all
	}
	const apiServer = "kube-apiserver"
	all[0].links = slices.DeleteFunc(all[0].links, func(link string) bool { return link == apiServer })
	return append(all, binary{
		name: "openshift-apiserver", module: "openshift-apiserver", pkg: ".", ldflags: kubeFlags, links: []string{apiServer},
		file: moduleFile{
			module: "github.com/openshift/api", name: sccCRD,
			path: "payload-manifests/crds/0000_03_config-operator_01_securitycontextconstraints.crd.yaml",
		},
	})
}

func plainBinaries() []binary {
	return []binary{
		{
			// One multi-call binary, because six separate ones are three times as large.
			name: "kube", module: "kube", pkg: ".", ldflags: kubeFlags,
			links: []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl"},
		},
		{name: "etcd", module: "etcd", pkg: ".", ldflags: plainFlags, links: []string{"etcd"}},
		containerdBinary("containerd"), containerdBinary("containerd-shim-runc-v2"), containerdBinary("ctr"),
		{name: "coredns", module: "coredns", pkg: "github.com/coredns/coredns", ldflags: plainFlags, links: []string{"coredns"}},
		// Cheap after kube: most of its packages are in Go's build cache, see its go.mod.
		{name: "provisioner", module: "provisioner", pkg: ".", ldflags: plainFlags, links: []string{"provisioner"}},
		{name: "pause", module: "pause", pkg: ".", ldflags: plainFlags, links: []string{"pause"}},
	}
}

func containerdBinary(name string) binary {
	return binary{
		name: name, module: "node", pkg: containerdModule + "/cmd/" + name, tags: containerdTags,
		ldflags: containerdFlags, links: []string{name},
	}
}

// selectBinaries returns the binaries of the modules named in only ("kube", "etcd", "node", ...). If only is empty, it
// returns all of the flavour.
func selectBinaries(f flavour, only []string) ([]binary, error) {
	all := allBinaries(f)
	if len(only) == 0 {
		return all, nil
	}
	var chosen []binary
	for _, o := range only {
		n := len(chosen)
		for _, b := range all {
			if b.module == o || b.name == o {
				chosen = append(chosen, b)
			}
		}
		if len(chosen) == n {
			return nil, fmt.Errorf("no binary is called %q: choose from kube, etcd, node, coredns, provisioner, pause, and with --openshift openshift-apiserver", o)
		}
	}
	return chosen, nil
}

func plainFlags(map[string]string) (string, error) { return "-s -w", nil }

// kubeFlags stamps the version. Without it every component reports v0.0.0-master and kubectl complains.
func kubeFlags(required map[string]string) (string, error) {
	version, ok := required["k8s.io/kubernetes"]
	if !ok {
		return "", errors.New("go.mod of the kube binary does not require k8s.io/kubernetes")
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := []string{"-s -w"}
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, fmt.Sprintf("-X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=clean", p, version, major, minor))
	}
	return strings.Join(flags, " "), nil
}

func containerdFlags(required map[string]string) (string, error) {
	version, ok := required[containerdModule]
	if !ok {
		return "", errors.New("go.mod of the node binaries does not require " + containerdModule)
	}
	return fmt.Sprintf("-s -w -X %s/version.Version=%s", containerdModule, strings.TrimPrefix(version, "v")), nil
}

// requiredVersions reads module versions from the text of a go.mod. The first mention wins, because `require` blocks
// come before `replace` blocks.
func requiredVersions(gomod string) map[string]string {
	versions := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(gomod))
	for lines.Scan() {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "require "))
		if len(f) >= 2 && strings.HasPrefix(f[1], "v") && !slices.Contains(f, "=>") {
			if _, known := versions[f[0]]; !known {
				versions[f[0]] = f[1]
			}
		}
	}
	return versions
}

// recipe is a binary together with everything that determines its bytes.
type recipe struct {
	binary
	dir   string
	flags string
	key   string
}

// newRecipe reads the binary's module below source and computes its key.
func newRecipe(b binary, source, goVersion string) (recipe, error) {
	r := recipe{binary: b, dir: filepath.Join(source, b.module)}
	gomod, err := os.ReadFile(filepath.Join(r.dir, "go.mod"))
	if err != nil {
		return r, fmt.Errorf("read the module of %s: %w", b.name, err)
	}
	if r.flags, err = b.ldflags(requiredVersions(string(gomod))); err != nil {
		return r, fmt.Errorf("compute the linker flags of %s: %w", b.name, err)
	}
	parts := [][]byte{gomod}
	for _, f := range []string{"go.sum", "main.go"} {
		content, err := os.ReadFile(filepath.Join(r.dir, f))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return r, fmt.Errorf("read the module of %s: %w", b.name, err)
		}
		parts = append(parts, content)
	}
	for _, s := range []string{b.name, b.pkg, b.tags, r.flags, goVersion, runtime.GOARCH} {
		parts = append(parts, []byte(s))
	}
	if b.file.name != "" {
		parts = append(parts, []byte(b.file.module), []byte(b.file.path), []byte(b.file.name))
	}
	r.key = cacheKey(parts...)
	return r, nil
}

// cacheKey hashes parts together with their lengths, so that ("ab","c") and ("a","bc") differ. 16 hex digits are enough
// to name a directory.
func cacheKey(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// stored is the directory of the built binary in the store.
func (r recipe) stored(l layout) string {
	return filepath.Join(l.store(), r.name+"-"+r.key, r.name)
}

// linked returns the links of the binary in the set, by name, with their targets in the store.
func (r recipe) linked(l layout) map[string]string {
	links := map[string]string{}
	for _, name := range r.links {
		links[name] = r.stored(l)
	}
	if r.file.name != "" {
		links[r.file.name] = filepath.Join(filepath.Dir(r.stored(l)), r.file.name)
	}
	return links
}
