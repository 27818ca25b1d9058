// Package nodeproc finds the processes of a Pod on its node, holds on to their network namespace, and notices when the
// last of them is gone. It needs the node's process namespace (hostPID) and nothing else: no runtime socket, no tool.
//
// What connects a process to its Pod is the path of its cgroup, which the kubelet and the container runtime name after
// the Pod's UID and the container's ID. Both cgroup drivers, both cgroup versions, containerd, CRI-O and dockershim are
// known; see parsePath for the shapes.
//
// A static Pod is in its cgroup by the hash in the annotation kubernetes.io/config.hash, not by the UID that the API
// server gave to its mirror: callers pass that hash as the UID.
package process
