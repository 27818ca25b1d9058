/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Page faults, a part of trace.bpf.c.
 *
 * sonde_fault  tp_btf/page_fault_user: a process has touched memory that the processor could not reach. x86-64; a kernel
 *              without the tracepoint, as all of arm64 are today, has no such records.
 *
 * They are many, and so they go into the CPU's ring as calls do. That is safe because nothing that writes to it can be at
 * work on this CPU then, and none can begin: the fault came while the CPU ran the process's own code and not the
 * kernel's, so no call's record has been begun; while the program runs the CPU is not given to another thread (x86 calls
 * the tracepoint with interrupts off); and memory that sonde_exit itself cannot read makes no fault from user mode.
 */
SEC("tp_btf/page_fault_user")
int BPF_PROG(sonde_fault, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct cgroup *g = cgroup_of(t);
	__u64 head, at, *numbers;
	struct record *r;
	struct ring *ring;
	char *data;

	if (!within(g))
		return 0;
	ring = ring_here();
	if (!ring)
		return 0;
	head = ring->head;
	at = head & ring_mask;
	data = (char *)ring + RING_HEAD;
	if (!has_room(ring, head)) {
		lose(ring, LOST_FAULT);
		return 0;
	}
	r = (struct record *)(data + at);
	begin(r, t, g, KIND_FAULT);
	numbers = (__u64 *)(data + at + sizeof(*r));
	numbers[0] = address;
#if defined(__TARGET_ARCH_x86)
	numbers[1] = regs->ip;
#else
	numbers[1] = regs->pc;
#endif
	numbers[2] = error;
	r->numbers = 3;
	r->size = sizeof(*r) + 3 * 8;
	publish(ring, head, behind(head, sizeof(*r) + 3 * 8));
	return 0;
}
