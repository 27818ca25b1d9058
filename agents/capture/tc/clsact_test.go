package tc

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
)

// Captures that begin and end at the same time do not remove each other's filters or the discipline.
func TestCapturesBesideEachOther(t *testing.T) {
	ns, p := newNamespace(t), passing(t)
	var both sync.WaitGroup
	for _, uid := range []string{"33333333-4444-4555-8666-777777777777", "55555555-4444-4555-8666-777777777777"} {
		both.Go(func() {
			for range 25 {
				if err := attachOnce(ns, uid, p); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	both.Wait()
	err := newFilterLock(slog.New(slog.DiscardHandler)).do(int(ns.Fd()), func(h *netlink.Handle) error {
		kind, err := disciplineOf(h, loopback)
		if kind != "" {
			t.Errorf("the captures left the discipline %s", kind)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A process of the target that holds the lock delays a capture once, however many filters it changes.
func TestHeldLockDelaysOnce(t *testing.T) {
	ns, p := newNamespace(t), passing(t)
	if err := unix.Flock(int(ns.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := newClsact("33333333-4444-4555-8666-777777777777", slog.New(slog.NewTextHandler(&log, nil)))
	c.lock.timeout = time.Second
	began := time.Now()
	for range 10 {
		a, err := c.attach(int(ns.Fd()), loopback, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if attached, _, err := a.check(); !attached || err != nil {
			t.Errorf("attached %v, %v", attached, err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(began); took < c.lock.timeout || took > 5*c.lock.timeout {
		t.Errorf("the changes took %v, want some more than %v", took, c.lock.timeout)
	}
	if n := strings.Count(log.String(), "without the lock"); n != 1 {
		t.Errorf("the log says so %d times: %s", n, &log)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// attachOnce attaches and detaches a program, and returns an error if the filter is missing in between.
func attachOnce(ns *os.File, uid string, p *ebpf.Program) error {
	c := newClsact(uid, slog.New(slog.DiscardHandler))
	a, err := c.attach(int(ns.Fd()), loopback, p, nil)
	if err != nil {
		return err
	}
	err = links.InNetNS(int(ns.Fd()), func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		filters, err := filtersAt(h, loopback, sides[0])
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(filters, func(f *netlink.BpfFilter) bool { return strings.HasPrefix(f.Name, c.tag) }) {
			return fmt.Errorf("no filter %s among %d", c.tag, len(filters))
		}
		return nil
	})
	return errors.Join(err, a.Close(), c.close())
}

// passing loads a program that ignores every packet.
func passing(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}
