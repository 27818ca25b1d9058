package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// minFree is the free disk space that a cluster needs: 1.5 GiB of build cache, 0.4 GiB of binaries, and the rest for
// images and Pods.
const minFree = 6 << 30

// cniPlugins is where Debian's containernetworking-plugins puts its programs.
const cniPlugins = "/usr/lib/cni"

// host holds what preflight has found on the machine.
type host struct{ runc, busybox string }

// machine is what preflight inspects; tests replace it.
type machine struct {
	euid     func() int
	lookPath func(program string) (string, error)
	exists   func(path string) bool
	static   func(program string) error
	free     func(dir string) (bytes uint64, err error)
	portFree func(addr string) error
}

func realMachine(ctx context.Context) machine {
	return machine{
		euid:     os.Geteuid,
		lookPath: lookPath,
		exists: func(path string) bool {
			_, err := os.Stat(path)
			return err == nil
		},
		static: checkStatic,
		free:   freeDisk,
		portFree: func(addr string) error {
			ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
			if err != nil {
				return err
			}
			return ln.Close()
		},
	}
}

// lookPath also searches sbin, which a user's PATH lacks: runc and nft are there.
func lookPath(program string) (string, error) {
	if p, err := exec.LookPath(program); err == nil {
		return filepath.Abs(p)
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin"} {
		if p, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return p, nil
		}
	}
	return "", exec.ErrNotFound
}

// freeDisk returns the free bytes on the disk of dir, which need not exist yet.
func freeDisk(dir string) (uint64, error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if err == nil {
			return st.Bavail * uint64(st.Bsize), nil
		}
		if !errors.Is(err, unix.ENOENT) || dir == filepath.Dir(dir) {
			return 0, fmt.Errorf("inspect the disk of %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
}

// checkRoot comes first, because the other checks give less clear errors without root.
func checkRoot(m machine) error {
	if m.euid() != 0 {
		return errors.New("not root: a cluster is made of namespaces, mounts and cgroups; run as root (sudo -E env PATH=\"$PATH\" ...)")
	}
	return nil
}

// preflight checks the machine's prerequisites. Its error names everything that is missing at once, and how to fix each
// item.
func preflight(m machine, l layout, wanted shape) (host, error) {
	var h host
	var problems []error
	add := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	missing := h.find(m)
	if wanted.NodeDisk > 0 {
		missing = append(missing, findDiskPrograms(m)...)
	}
	if len(missing) > 0 {
		add("missing: %s; run `make deps`", strings.Join(missing, ", "))
	}
	if !m.exists("/proc/sys/net/bridge") {
		add("missing: the kernel's br_netfilter, without which Services do not work; run `modprobe br_netfilter`")
	}
	for _, p := range []struct{ addr, what string }{{l.apiForward(), "the API server"}, {l.registryForward(), "the image registry"}} {
		if err := m.portFree(p.addr); err != nil {
			_, port, _ := strings.Cut(p.addr, ":")
			add("port %s, for %s, is taken (%w): find the listener with `ss -ltnp sport = :%s` and stop it", p.addr, p.what, err, port)
		}
	}
	needed := uint64(minFree) + uint64(wanted.Nodes)*uint64(wanted.NodeDisk)
	free, err := m.free(l.base)
	switch {
	case err != nil:
		problems = append(problems, err)
	case free < needed:
		add("only %.1f GiB are free at %s, %.3g are needed: free some, or set XDG_CACHE_HOME to a larger disk", float64(free)/(1<<30), l.base, float64(needed)/(1<<30))
	}
	return h, errors.Join(problems...)
}

// find searches for the programs of Debian packages and returns the missing ones, each with its package.
func (h *host) find(m machine) []string {
	var missing []string
	var err error
	if h.runc, err = m.lookPath("runc"); err != nil {
		missing = append(missing, "runc (package runc)")
	}
	if _, err = m.lookPath("nft"); err != nil {
		missing = append(missing, "nft (package nftables)")
	}
	for _, p := range []string{"bridge", "host-local", "portmap", "loopback"} {
		if !m.exists(filepath.Join(cniPlugins, p)) {
			missing = append(missing, cniPlugins+"/"+p+" (package containernetworking-plugins)")
			break
		}
	}
	if h.busybox, err = m.lookPath("busybox"); err != nil {
		missing = append(missing, "busybox (package busybox-static)")
	} else if m.static(h.busybox) != nil {
		missing = append(missing, "a static busybox, "+h.busybox+" needs libraries (package busybox-static)")
	}
	return missing
}

// findDiskPrograms returns the missing programs for nodes with disks of their own.
func findDiskPrograms(m machine) []string {
	var missing []string
	if _, err := m.lookPath(mkfs); err != nil {
		missing = append(missing, mkfs+" (package e2fsprogs)")
	}
	if !m.exists("/dev/loop-control") {
		missing = append(missing, "the kernel's loop devices (`modprobe loop`)")
	}
	return missing
}
