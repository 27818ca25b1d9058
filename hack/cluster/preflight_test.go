package main

import (
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestPreflight(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*machine)
		wanted  shape
		wantErr string
	}{
		"all there": {change: func(*machine) {}},
		"no runc": {
			change:  without("runc"),
			wantErr: "missing: runc (package runc); run `make deps`",
		},
		"no packages": {
			change: func(m *machine) {
				without("runc", "nft", "busybox")(m)
				m.exists = func(path string) bool { return !strings.HasPrefix(path, "/usr/lib/cni") }
			},
			wantErr: "missing: runc (package runc), nft (package nftables), /usr/lib/cni/bridge (package containernetworking-plugins), " +
				"busybox (package busybox-static); run `make deps`",
		},
		"dynamic busybox": {
			change:  func(m *machine) { m.static = func(string) error { return exec.ErrDot } },
			wantErr: "missing: a static busybox, /usr/bin/busybox needs libraries (package busybox-static); run `make deps`",
		},
		"no br_netfilter": {
			change:  func(m *machine) { m.exists = func(path string) bool { return path != "/proc/sys/net/bridge" } },
			wantErr: "missing: the kernel's br_netfilter, without which Services do not work; run `modprobe br_netfilter`",
		},
		"port taken": {
			change: func(m *machine) {
				m.portFree = func(addr string) error {
					if addr == (layout{}).apiForward() {
						return syscall.EADDRINUSE
					}
					return nil
				}
			},
			wantErr: "port 127.0.0.1:16443, for the API server, is taken (address already in use): " +
				"find the listener with `ss -ltnp sport = :16443` and stop it",
		},
		"disk full, and more": {
			change: func(m *machine) {
				without("nft")(m)
				m.free = func(string) (uint64, error) { return 3 << 30, nil }
			},
			wantErr: "missing: nft (package nftables); run `make deps`\n" +
				"only 3.0 GiB are free at /cache, 6 are needed: free some, or set XDG_CACHE_HOME to a larger disk",
		},
		"no room for the nodes' disks, and nothing to make them with": {
			change: func(m *machine) {
				without("mkfs.ext4")(m)
				m.exists = func(path string) bool { return path != "/dev/loop-control" }
			},
			wanted: shape{Nodes: 3, NodeDisk: 512 * mebibyte},
			wantErr: "missing: mkfs.ext4 (package e2fsprogs), the kernel's loop devices (`modprobe loop`); run `make deps`\n" +
				"only 6.0 GiB are free at /cache, 7.5 are needed: free some, or set XDG_CACHE_HOME to a larger disk",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine{
				lookPath: func(program string) (string, error) { return "/usr/bin/" + program, nil },
				exists:   func(string) bool { return true },
				static:   func(string) error { return nil },
				free:     func(string) (uint64, error) { return minFree, nil },
				portFree: func(string) error { return nil },
			}
			tc.change(&m)
			h, err := preflight(m, layout{base: "/cache"}, tc.wanted)
			checkErr(t, err, tc.wantErr)
			if want := (host{runc: "/usr/bin/runc", busybox: "/usr/bin/busybox"}); tc.wantErr == "" && h != want {
				t.Errorf("got %+v, want %+v", h, want)
			}
		})
	}
}

func TestCheckRoot(t *testing.T) {
	checkErr(t, checkRoot(machine{euid: func() int { return 0 }}), "")
	checkErr(t, checkRoot(machine{euid: func() int { return 1000 }}),
		`not root: a cluster is made of namespaces, mounts and cgroups; run as root (sudo -E env PATH="$PATH" ...)`)
}

// without is a machine that lacks some programs.
func without(missing ...string) func(*machine) {
	return func(m *machine) {
		m.lookPath = func(program string) (string, error) {
			if slices.Contains(missing, program) {
				return "", exec.ErrNotFound
			}
			return "/usr/bin/" + program, nil
		}
	}
}

func TestPortFree(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := realMachine(t.Context())
	if err := m.portFree(ln.Addr().String()); err == nil {
		t.Error("a port with a listener counts as free")
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.portFree(ln.Addr().String()); err != nil {
		t.Errorf("a port without a listener counts as taken: %v", err)
	}
}

func TestFreeDiskOfAFutureDirectory(t *testing.T) {
	free, err := freeDisk(t.TempDir() + "/not/yet/made")
	if err != nil || free == 0 {
		t.Errorf("got %d, %v", free, err)
	}
}
