package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// leftBehind is the name of a filter whose probe was killed.
const leftBehind = "sonde:uid-0:ABCDEFGH:made"

// clsactOf is clsact at an interface, with its filters.
type clsactOf struct {
	t     *testing.T
	h     *netlink.Handle
	index int
}

// clsactIn reads loopback's clsact in the network namespace of a process.
func clsactIn(t *testing.T, pid int) *clsactOf {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	h, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	l, err := h.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	return &clsactOf{t, h, l.Attrs().Index}
}

// leave creates the remains of a killed probe.
func (c *clsactOf) leave() {
	c.t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, -1), asm.Return(),
	}})
	if err != nil {
		c.t.Fatal(err)
	}
	defer p.Close()
	at := netlink.QdiscAttrs{LinkIndex: c.index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	if err := c.h.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: at, QdiscType: "clsact"}); err != nil {
		c.t.Fatal(err)
	}
	err = c.h.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: c.index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 50, Protocol: unix.ETH_P_ALL},
		Fd:          p.FD(), Name: leftBehind, DirectAction: true,
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// isThere reports whether the discipline exists; deleting it deletes its filters.
func (c *clsactOf) isThere() bool {
	c.t.Helper()
	all, err := c.h.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: c.index}})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, q := range all {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT {
			return true
		}
	}
	return false
}

// sweep runs the command that the operator runs after a probe was killed.
func (p *pod) sweep(more ...string) int {
	p.t.Helper()
	return p.exit(p.start(exec.Command(os.Getenv(agentVariable), append([]string{"sweep", "--pod-uid", p.uid}, more...)...)))
}

// sweeps removes the remains from one namespace, and from no other.
func sweeps(p *pod) {
	p.startTarget(syscall.CLONE_NEWNET)
	target, node := clsactIn(p.t, p.target.Process.Pid), clsactIn(p.t, 1)
	target.leave()
	node.leave()
	if code := p.sweep(); code != 0 || target.isThere() || !node.isThere() {
		p.t.Errorf("swept a Pod: exit code %d, left in the Pod: %v, in the node's: %v", code, target.isThere(), node.isThere())
	}
	target.leave()
	if code := p.sweep("--host-network"); code != 0 || !target.isThere() || node.isThere() {
		p.t.Errorf("swept a node: exit code %d, left in the Pod: %v, in the node's: %v", code, target.isThere(), node.isThere())
	}
	if code := p.sweep(); code != 0 || target.isThere() {
		p.t.Errorf("swept the Pod again: exit code %d, left: %v", code, target.isThere())
	}
	if code := p.sweep("--host-network"); code != 0 {
		p.t.Errorf("swept the node with nothing to sweep: exit code %d", code)
	}
	_ = p.target.Process.Kill()
	_ = p.target.Wait()
	if code := p.sweep(); code != 0 {
		p.t.Errorf("swept a Pod that is gone: exit code %d", code)
	}
}

// sweepsNoNode: the node is not swept for a Pod that is still in the node's namespace.
func sweepsNoNode(p *pod) {
	p.startTarget(0)
	if code := p.sweep(); code != 1 {
		p.t.Errorf("exit code %d, want 1", code)
	}
}
