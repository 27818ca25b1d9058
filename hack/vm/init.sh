#!/bin/busybox sh
# The first process of the virtual machine: it mounts what a node has, runs the command and prints its exit status.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/ TMPDIR=/tmp REQUIRE_PRIVILEGED=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
# Mount a tmpfs, because the root of an initramfs can be neither pivoted nor bound.
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t bpf bpf /sys/fs/bpf
while read -r module; do
	insmod "/modules/$module.ko" || echo "vm: module $module cannot be loaded"
done </modules/order
if grep -q vm_cgroups=v1 /proc/cmdline; then
	mount -t tmpfs tmpfs /sys/fs/cgroup
	for controller in cpu cpuacct memory pids devices freezer; do
		mkdir "/sys/fs/cgroup/$controller"
		mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller"
	done
else
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
ip link set lo up
ulimit -n 65536
echo "vm: kernel $(uname -r)"
cd /vm || exit
sh -c ". /vm/command"
echo "vm: exit status $?"
poweroff -f
