package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// runDown removes the cluster, or says that there is none.
func runDown(l layout, p *progress) error {
	if err := checkRoot(machine{euid: os.Geteuid}); err != nil {
		return err
	}
	lock, err := takeLock(l.runLock(), p)
	if err != nil {
		return err
	}
	defer lock.Close()
	found, err := anythingLeft(l)
	if err != nil {
		return err
	}
	if !found {
		p.step("no cluster is up")
		return nil
	}
	if err := removeCluster(l, p); err != nil {
		return err
	}
	p.step("cluster is down")
	return nil
}

// anythingLeft reports whether any trace of a cluster is on the machine.
func anythingLeft(l layout) (bool, error) {
	cgroups, err := clusterCgroups(l)
	if err != nil {
		return false, err
	}
	namespaces, err := leftNetns(l)
	if err != nil {
		return false, err
	}
	disks, err := loopDevices(l.netnsPrefix())
	if err != nil {
		return false, err
	}
	_, err = os.Stat(l.run())
	return len(cgroups) > 0 || len(namespaces) > 0 || len(disks) > 0 || err == nil, nil
}

// removeCluster kills all processes of the cluster, which also ends their pid and mount namespaces with every mount in
// them. Then it removes the files. It relies on nothing that `up` recorded.
func removeCluster(l layout, p *progress) error {
	if err := releaseDisks(l); err != nil {
		return err
	}
	killed, err := killAll(l)
	if err != nil {
		return err
	}
	if killed > 0 {
		p.step("killed %d processes", killed)
	}
	if err := removeNetwork(l); err != nil {
		return err
	}
	if err := removeCgroups(l); err != nil {
		return err
	}
	if err := unmountBelow(l.run()); err != nil {
		return err
	}
	if err := awaitDisks(l); err != nil {
		return err
	}
	if err := os.RemoveAll(l.run()); err != nil {
		return fmt.Errorf("remove the cluster's files: %w", err)
	}
	return nil
}

// unmountBelow unmounts everything below dir on the machine. Usually there is nothing, but removing files through a
// mount would be worse than this check.
func unmountBelow(dir string) error {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	points := mountsBelow(content, dir)
	slices.Reverse(points)
	for _, m := range points {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	return nil
}

// mountsBelow returns the mount points at or below dir in the text of /proc/<pid>/mountinfo, see proc(5): the fifth
// field, with blanks as \040.
func mountsBelow(mountinfo []byte, dir string) []string {
	var points []string
	lines := bufio.NewScanner(bytes.NewReader(mountinfo))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 5 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(f[4])
		if point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	return points
}
