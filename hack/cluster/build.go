package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	// silence is the longest time without output from a build.
	silence = 15 * time.Second
	// keptLines is the number of lines of the compiler's output in the error of a failed build.
	keptLines = 20
)

// findSource returns the directory `binaries` of the checkout: the checkout around the working directory if there is
// one, otherwise the one that this program was built from.
func findSource() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	var tried []string
	for d := wd; ; d = filepath.Dir(d) {
		tried = append(tried, filepath.Join(d, "hack", "cluster", "binaries"))
		if d == filepath.Dir(d) {
			break
		}
	}
	tried = append(tried, filepath.Join(wd, "binaries"))
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		tried = append(tried, filepath.Join(filepath.Dir(file), "binaries"))
	}
	for _, t := range tried {
		if _, err := os.Stat(filepath.Join(t, "kube", "go.mod")); err == nil {
			return t, nil
		}
	}
	return "", errors.New("cannot find hack/cluster/binaries: run this inside a checkout of Sonde")
}

// recipes returns the recipes of the chosen binaries in this checkout.
func recipes(ctx context.Context, chosen []binary) ([]recipe, error) {
	source, err := findSource()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir = filepath.Join(source, "kube")
	version, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("missing: go, in PATH %s (with sudo, pass PATH on: sudo env PATH=\"$PATH\" ...)", os.Getenv("PATH"))
	}
	if err != nil {
		return nil, fmt.Errorf("ask go for its version: %w", err)
	}
	var all []recipe
	for _, b := range chosen {
		r, err := newRecipe(b, source, strings.TrimSpace(string(version)))
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// binarySet is the directory that holds a link to every binary, under the name of each program. Its name comes from the
// keys of all binaries, even if only some are built, so that `build --only kube,etcd` and `up` share it. Each flavour
// has its own.
func binarySet(ctx context.Context, l layout, f flavour) (string, error) {
	all, err := recipes(ctx, allBinaries(f))
	if err != nil {
		return "", err
	}
	var keys [][]byte
	for _, r := range all {
		keys = append(keys, []byte(r.key))
	}
	return filepath.Join(l.bin(), cacheKey(keys...)), nil
}

// buildBinaries builds the flavour's binaries that are not stored yet, or those named in only. It links them into the
// set and returns the directory of the set.
func buildBinaries(ctx context.Context, l layout, p *progress, f flavour, only ...string) (string, error) {
	chosen, err := selectBinaries(f, only)
	if err != nil {
		return "", err
	}
	lock, err := takeLock(l.buildLock(), p)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	set, err := binarySet(ctx, l, f)
	if err != nil {
		return "", err
	}
	wanted, err := recipes(ctx, chosen)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(set, 0o755); err != nil {
		return "", fmt.Errorf("create the directory of binaries: %w", err)
	}
	for _, r := range wanted {
		if _, err := os.Stat(r.stored(l)); err != nil {
			if err := r.build(ctx, l, p); err != nil {
				return "", err
			}
		}
		if err := r.link(l, set); err != nil {
			return "", err
		}
	}
	return set, nil
}

// link replaces the binary's names in the set atomically, because a running cluster may be starting programs from
// there.
func (r recipe) link(l layout, set string) error {
	for name, want := range r.linked(l) {
		at := filepath.Join(set, name)
		if target, err := os.Readlink(at); err == nil && target == want {
			continue
		}
		tmp := at + ".new"
		if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("link %s: %w", name, err)
		}
		if err := os.Symlink(want, tmp); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
		if err := os.Rename(tmp, at); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}

// build compiles the binary into the store. It compiles beside the final place and renames, so that a killed build
// never leaves half a binary.
func (r recipe) build(ctx context.Context, l layout, p *progress) error {
	dir := filepath.Dir(r.stored(l))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("prepare the directory of %s: %w", r.name, err)
	}
	tmp := r.stored(l) + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-tags", r.tags, "-ldflags", r.flags, "-o", tmp, r.pkg)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false -trimpath")
	cmd.SysProcAttr = dieTogether()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("read the output of go build: %w", err)
	}
	p.step("building %s%s", r.name, r.patience())
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go build for %s: %w", r.name, err)
	}
	var out compilerOutput
	stop := p.during(silence, func() string {
		return fmt.Sprintf("building %s: %s", r.name, out.summary())
	})
	out.read(stderr)
	err = cmd.Wait()
	stop()
	if err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", r.name, r.dir, err, out.tail())
	}
	if err := r.keepFile(ctx, dir); err != nil {
		return err
	}
	if err := os.Rename(tmp, r.stored(l)); err != nil {
		return fmt.Errorf("put %s in place: %w", r.name, err)
	}
	p.step("built %s in %.0fs", r.name, time.Since(start).Seconds())
	return nil
}

// keepFile copies the binary's module file to dir. The module was needed for the build, so the module cache has it.
func (r recipe) keepFile(ctx context.Context, dir string) error {
	if r.file.name == "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", r.file.module)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	root, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("find the module %s: %w", r.file.module, err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), r.file.path))
	if err != nil {
		return fmt.Errorf("read a file of the module %s: %w", r.file.module, err)
	}
	if err := os.WriteFile(filepath.Join(dir, r.file.name), content, 0o644); err != nil {
		return fmt.Errorf("keep %s: %w", r.file.name, err)
	}
	return nil
}

// patience returns a hint for builds that take long.
func (r recipe) patience() string {
	switch r.name {
	case "kube":
		return ": all of Kubernetes; about 8 minutes on two cores the first time"
	case "openshift-apiserver":
		return ": about a minute on two cores after kube"
	default:
		return ""
	}
}

// compilerOutput reads the output of `go build -v`: the names of the packages that it compiles, downloads, and errors.
type compilerOutput struct {
	mu         sync.Mutex
	compiled   int
	downloaded int
	last       []string
}

func (o *compilerOutput) read(from io.Reader) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		o.add(lines.Text())
	}
	// A line too long for the scanner must not block the compiler.
	_, _ = io.Copy(io.Discard, from)
}

func (o *compilerOutput) add(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		o.downloaded++
	case !strings.ContainsAny(line, " \t:"):
		o.compiled++
	default:
		o.last = append(o.last, line)
		o.last = o.last[max(0, len(o.last)-keptLines):]
	}
}

func (o *compilerOutput) summary() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := fmt.Sprintf("%d packages compiled", o.compiled)
	if o.compiled == 0 && o.downloaded > 0 {
		s = fmt.Sprintf("%d modules downloaded", o.downloaded)
	}
	return s
}

func (o *compilerOutput) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.last, "\n")
}
