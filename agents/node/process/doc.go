// Package process finds the processes of a Pod on its node, opens their network namespace, and reports when the last of them
// has ended. It needs the node's process namespace (hostPID) and nothing else: no runtime socket, no tool.
//
// The path of a process's cgroup identifies its Pod: the kubelet and the container runtime put the Pod's UID and the
// container's ID into it. The package knows both cgroup drivers, both cgroup versions, containerd, CRI-O and dockershim; see
// parsePath for the formats.
//
// In the cgroup of a static Pod, the annotation kubernetes.io/config.hash replaces the UID of its mirror Pod. Callers
// pass that hash as the UID.
package process
