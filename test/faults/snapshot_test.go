//go:build faults

package faults

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sonde-operator/sonde/test/cluster"
)

// cleanUp is how long Kubernetes may take to clean up after a capture is deleted. A Pod has 10 s to end, a restarted
// node needs a while to find its Pods, and Pods of a deleted node are collected every minute or two.
const cleanUp = 3 * time.Minute

// snapshot counts everything that exists, by description. The count exceeds 1 where descriptions are equal.
type snapshot map[string]int

// takeSnapshot inspects both nodes, the kernel's BPF objects and all objects of the API.
func takeSnapshot(t *testing.T) snapshot {
	t.Helper()
	s := snapshot{}
	for _, node := range []string{spare, hurt} {
		s.add(node, cluster.OnNode(t, node, "sh", "-c", onNodeScript))
	}
	bpfObjects(t, s)
	apiObjects(t, s)
	return s
}

// steadySnapshot returns a snapshot that equals the one before it, so that it does not contain objects that are just
// being removed.
func steadySnapshot(t *testing.T) snapshot {
	t.Helper()
	s := takeSnapshot(t)
	for end := time.Now().Add(cleanUp); ; {
		next := takeSnapshot(t)
		changed := s.diff(next)
		if len(changed) == 0 {
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("nodes and API keep changing:\n%s", strings.Join(changed, "\n"))
		}
		s = next
	}
}

// onNodeScript prints one line for each thing on a node. kube-proxy empties the chains of a deleted Service, and deletes them with one of
// its next changes: empty chains do not count.
const onNodeScript = `
say() { sed "s/^/$1: /"; }
ip -d -o link | say link
for link in $(ls /sys/class/net); do
	tc qdisc show dev $link 2>/dev/null | say "qdisc of $link"
	tc filter show dev $link 2>/dev/null | say "filter of $link"
	tc filter show dev $link ingress 2>/dev/null | say "ingress filter of $link"
	tc filter show dev $link egress 2>/dev/null | say "egress filter of $link"
done
ip route | say route
nft -s list ruleset 2>/dev/null | awk '
	/^\tchain .*{$/ { chain = $0; next }
	chain != "" { if ($0 == "\t}") { chain = ""; next } print chain; chain = "" }
	NF' | say nft
sed 1d /proc/net/packet | awk '{ print $3, $4, $5 }' | say "packet socket"
sed 1d /proc/net/raw | awk '{ print $2, $3 }' | say "raw socket"
ss -Hlntu | awk '{ print $1, $5 }' | say listens
awk '{ print $5, $9, $10 }' /proc/1/mountinfo | say mount
for p in /proc/[0-9]*; do tr '\0\n' '  ' <$p/cmdline 2>/dev/null | awk '{ print $1, $2 }'; done | say process
find /var/lib/kubelet/pods -maxdepth 1 | say file
find /var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir 2>/dev/null | say file
find /run/netns /sys/fs/bpf -maxdepth 1 | say file
ls /run/containerd/io.containerd.runtime.v2.task/k8s.io | say container
find /sys/fs/cgroup/memory/kubepods /sys/fs/cgroup/kubepods -maxdepth 2 -type d 2>/dev/null | say cgroup
`

// insideTarget inspects what a probe can reach: the network of a Pod, and its process's mounts.
func insideTarget(t *testing.T, p *corev1.Pod) snapshot {
	t.Helper()
	found := pids(t, p, "c")
	if len(found) == 0 {
		t.Fatalf("found no process of %s", p.Name)
	}
	s := snapshot{}
	s.add("target", cluster.OnNode(t, p.Spec.NodeName, "sh", "-c", "cat /proc/"+found[0]+"/mountinfo | sed 's/^[0-9]* [0-9]* /mount: /'; "+
		"nsenter -t "+found[0]+" -n sh -c '"+strings.ReplaceAll(insideScript, "'", `'\''`)+"'"))
	return s
}

const insideScript = `
ip -d -o link | sed "s/^/link: /"
ip -o address | sed "s/^/address: /"
ip route | sed "s/^/route: /"
for link in $(ip -o link | sed "s/^[0-9]*: \([^:@]*\).*/\1/"); do
	tc qdisc show dev $link; tc filter show dev $link; tc filter show dev $link ingress 2>/dev/null; tc filter show dev $link egress 2>/dev/null
done | sed "s/^/traffic control: /"
nft -s list ruleset 2>/dev/null | sed "s/^/nft: /"
sed 1d /proc/thread-self/net/packet | sed "s/^/packet socket: /"
ss -Hnlptu | sed "s/^/listens: /"
grep -o "@sonde.*" /proc/thread-self/net/unix | sed "s/^/socket of a capture: /"
`

// transient are processes that come and go on a node by themselves, and the inspection's own processes.
var transient = regexp.MustCompile(`process: (\S*/)?(sh|ps|nft|ip|tc|ss|tr|awk|sed|find|ls|cat|runc|iptables\S*|ip6tables\S*|host-local|bridge|portmap|loopback|xtables\S*|conntrack|du|mount|umount|init|exe)?( |$)`)

func (s snapshot) add(where, text string) {
	for line := range strings.Lines(text) {
		line = normal(strings.TrimSpace(line))
		if line != "" && !transient.MatchString(line) {
			s[where+": "+line]++
		}
	}
}

// normal removes what changes with each start of a component: random names, addresses, IDs. Lines that differ only in
// these are counted together.
func normal(line string) string {
	for _, r := range volatile {
		line = r.pattern.ReplaceAllString(line, r.by)
	}
	return line
}

var volatile = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`[0-9a-f]{64}`), "ID"},
	{regexp.MustCompile(`veth[0-9a-f]{8}(@if\d+)?`), "veth"},
	{regexp.MustCompile(`^(link: )?\d+: `), "$1"},
	{regexp.MustCompile(`[0-9a-f]{2}(:[0-9a-f]{2}){5}`), "MAC"},
	{regexp.MustCompile(`link-netns\S* \S+`), ""},
	{regexp.MustCompile(`(port_id|port_no|designated_port|root_port) \S+`), "$1"},
	{regexp.MustCompile(`\b(hello|tcn|topology_change|gc|message_age|hold|forward_delay)_timer +\S+`), ""},
	{regexp.MustCompile(`bridge_id \S+|designated_(root|bridge) \S+|root_id \S+`), ""},
	{regexp.MustCompile(`10\.244\.\d+\.\d+(/\d+)?`), "POD"},
	{regexp.MustCompile(`(service|endpoint|firewall|external|local)-[A-Z2-7]{8}-`), "$1-"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access"},
	{regexp.MustCompile(`(sonde-manager|coredns)-[a-z0-9]+-[a-z0-9]{5}`), "$1"},
	{regexp.MustCompile(`(127\.0\.0\.1|\[::1\]):[345]\d{4}`), "$1:PORT"},
	{regexp.MustCompile(`lowerdir=\S+|upperdir=\S+|workdir=\S+`), ""},
	{regexp.MustCompile(`rootfs-\d+|snapshots/\d+`), "N"},
}

// diff lists the lines whose count differs from before.
func (s snapshot) diff(now snapshot) []string {
	var out []string
	all := maps.Clone(s)
	maps.Copy(all, now)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if s[k] != now[k] {
			out = append(out, fmt.Sprintf("%+d %s", now[k]-s[k], k))
		}
	}
	return out
}

// awaitSnapshot waits until nodes and API are as before.
func awaitSnapshot(t *testing.T, before snapshot) {
	t.Helper()
	await(t, before, "nodes and API", func() snapshot { return takeSnapshot(t) })
}

// await waits until current returns the same as before.
func await(t *testing.T, before snapshot, what string, current func() snapshot) {
	t.Helper()
	began := time.Now()
	for {
		left := before.diff(current())
		if len(left) == 0 {
			t.Logf("%s are as before after %s", what, time.Since(began).Round(time.Second))
			return
		}
		if time.Since(began) > cleanUp {
			t.Errorf("%s are not as before %s later:\n%s", what, cleanUp, strings.Join(left, "\n"))
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// awaitOldLogsGone waits until the kubelets have removed the logs of deleted Pods. They do so once a minute, which is
// too rare to await it after each fault.
func awaitOldLogsGone(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, cleanUp, "logs of deleted Pods removed", func(ctx context.Context) error {
		var namespaces corev1.NamespaceList
		if err := cluster.Admin.List(ctx, &namespaces); err != nil {
			return err
		}
		for i := range namespaces.Items {
			if namespaces.Items[i].DeletionTimestamp != nil {
				return fmt.Errorf("namespace %s is being deleted", namespaces.Items[i].Name)
			}
		}
		var pods corev1.PodList
		if err := cluster.Admin.List(ctx, &pods); err != nil {
			return err
		}
		var old []string
		for _, node := range []string{spare, hurt} {
			for dir := range strings.FieldsSeq(cluster.OnNode(t, node, "ls", "/var/log/pods")) {
				if !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return strings.HasSuffix(dir, string(p.UID)) }) {
					old = append(old, node+": "+dir)
				}
			}
		}
		if len(old) > 0 {
			return fmt.Errorf("logs are left: %v", old)
		}
		return nil
	})
}
