package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// program is the smallest file that counts as a static program for a machine.
func program(t *testing.T, machine elf.Machine, interpreted bool) []byte {
	t.Helper()
	h := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64,
	}
	var b bytes.Buffer
	var segments []elf.Prog64
	if interpreted {
		h.Phoff, h.Phentsize, h.Phnum = 64, 56, 1
		segments = append(segments, elf.Prog64{Type: uint32(elf.PT_INTERP)})
	}
	if err := errors.Join(binary.Write(&b, binary.LittleEndian, h), binary.Write(&b, binary.LittleEndian, segments)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, content, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// sources creates programs for both architectures and a directory, and changes to their directory.
func sources(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "bin/linux_amd64/manager", program(t, elf.EM_X86_64, false))
	write(t, "bin/linux_arm64/manager", program(t, elf.EM_AARCH64, false))
	write(t, "bin/linked", program(t, elf.EM_X86_64, true))
	write(t, "bundle/manifests/a.yaml", []byte("a: b\n"))
	write(t, "bundle/manifests/deep/b.yaml", []byte("b: c\n"))
	write(t, "labels.yaml", []byte("annotations:\n  one: first\n  two: of the file\n"))
	write(t, "LICENSE", []byte("free"))
}

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := rootCommand()
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func serve(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(registry.New())
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// file holds the properties of a file in a layer.
type file struct {
	mode     int64
	uid, gid int
	content  string
}

func filesOf(t *testing.T, img v1.Image) map[string]file {
	t.Helper()
	files := map[string]file{}
	for r := tar.NewReader(mutate.Extract(img)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = file{mode: h.Mode, uid: h.Uid, gid: h.Gid, content: string(content)}
		}
	}
}

var multiArch = []string{
	"build", "-o", "out.tar", "--name", "registry/demo:v1", "--arch", "amd64,arm64", "--labels", "labels.yaml", "--label", "two=of the flag",
	"--user", "65532:65532", "--entrypoint", "/manager,--serve", "--created", "2026-03-04", "manager=bin/linux_{arch}/manager", "licenses/LICENSE=LICENSE",
}

func TestMultiArch(t *testing.T) {
	sources(t)
	if _, err := execute(t, multiArch...); err != nil {
		t.Fatal(err)
	}
	pinned, err := execute(t, "push", "out.tar", serve(t)+"/demo:v1")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewDigest(strings.TrimSpace(pinned))
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := execute(t, "digest", "out.tar"); err != nil || strings.TrimSpace(digest) != ref.DigestStr() {
		t.Errorf("got digest %s (%v), want %s as in the registry", digest, err, ref.DigestStr())
	}
	for arch, machine := range machines {
		img, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != arch || config.OS != "linux" || !config.Created.Equal(time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("%s/%s, made at %s", config.OS, config.Architecture, config.Created)
		}
		want := v1.Config{
			Entrypoint: []string{"/manager", "--serve"}, User: "65532:65532", Env: []string{"PATH=/"},
			Labels: map[string]string{"one": "first", "two": "of the flag"},
		}
		if diff := cmp.Diff(want, config.Config); diff != "" {
			t.Errorf("configuration of %s (-want +got):\n%s", arch, diff)
		}
		wantFiles := map[string]file{
			"manager":          {mode: 0o755, content: string(program(t, machine, false))},
			"licenses/LICENSE": {mode: 0o644, content: "free"},
		}
		if diff := cmp.Diff(wantFiles, filesOf(t, img), cmp.AllowUnexported(file{})); diff != "" {
			t.Errorf("files of %s (-want +got):\n%s", arch, diff)
		}
	}
}

func TestBundle(t *testing.T) {
	sources(t)
	if _, err := execute(t, "build", "-o", "out.tar", "--name", "registry/demo:v1", "--labels", "labels.yaml", "manifests=bundle/manifests"); err != nil {
		t.Fatal(err)
	}
	pinned, err := execute(t, "push", "out.tar", serve(t)+"/demo:v1")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewDigest(strings.TrimSpace(pinned))
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := execute(t, "digest", "out.tar"); err != nil || strings.TrimSpace(digest) != ref.DigestStr() {
		t.Errorf("got digest %s (%v), want %s as in the registry", digest, err, ref.DigestStr())
	}
	img, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	wantFiles := []string{"manifests/a.yaml", "manifests/deep/b.yaml"}
	if diff := cmp.Diff(wantFiles, slices.Sorted(maps.Keys(filesOf(t, img)))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1.Config{Labels: map[string]string{"one": "first", "two": "of the file"}}, config.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestSameInputSameBytes(t *testing.T) {
	sources(t)
	for name, args := range map[string][]string{
		"index":          multiArch,
		"docker archive": {"build", "-o", "out.tar", "--name", "registry/demo:v1", "--labels", "labels.yaml", "manifests=bundle/manifests"},
	} {
		t.Run(name, func(t *testing.T) {
			var first []byte
			for i := range 3 {
				later := time.Now().Add(time.Duration(i) * time.Hour)
				if err := os.Chtimes("bundle/manifests/a.yaml", later, later); err != nil {
					t.Fatal(err)
				}
				if _, err := execute(t, args...); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile("out.tar")
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = got
				}
				if !bytes.Equal(first, got) {
					t.Fatal("the same files give different archives")
				}
			}
		})
	}
	left, err := filepath.Glob(".*")
	if err != nil || len(left) != 0 {
		t.Errorf("files are left: %v (%v)", left, err)
	}
}

func TestRefusals(t *testing.T) {
	sources(t)
	build := func(args ...string) []string {
		return append([]string{"build", "-o", "out.tar", "--name", "a:1"}, args...)
	}
	for name, tc := range map[string]struct {
		args    []string
		wantErr string
	}{
		"another machine":  {build("m=bin/linux_arm64/manager"), "build it with GOARCH=amd64"},
		"not static":       {build("m=bin/linked"), "build it with CGO_ENABLED=0"},
		"no such file":     {build("m=gone"), "gone"},
		"an unknown arch":  {build("--arch", "s390x", "m=LICENSE"), "amd64 and arm64 are"},
		"half a pair":      {build("m="), "PATH=FILE"},
		"half a label":     {build("--label", "a", "m=LICENSE"), "KEY=VALUE"},
		"labels of a list": {build("--labels", "LICENSE", "m=LICENSE"), "a map below one key"},
		"no labels' file":  {build("--labels", "gone", "m=LICENSE"), "read the labels"},
		"not a day":        {build("--created", "now", "m=LICENSE"), "like 2026-03-04"},
		"not a name":       {[]string{"build", "-o", "out.tar", "--name", "A:1", "m=LICENSE"}, "name the image"},
		"no registry":      {[]string{"push", "out.tar", "A:1"}, "name the image in the registry"},
		"no archive":       {[]string{"push", "gone.tar", "127.0.0.1:1/a:1"}, "gone.tar"},
		"no digest":        {[]string{"digest", "gone.tar"}, "gone.tar"},
		"not an archive":   {[]string{"push", "LICENSE", "127.0.0.1:1/a:1"}, "LICENSE"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got error %v, want one that contains %q", err, tc.wantErr)
			}
			if _, err := os.Stat("out.tar"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("an archive was written: %v", err)
			}
		})
	}
}
