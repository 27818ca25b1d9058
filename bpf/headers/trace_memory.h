/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Page faults, a part of trace.bpf.c.
 *
 * sonde_fault    tp_btf/page_fault_user: a process has touched memory that the processor could not reach. x86-64; a
 *                kernel without the tracepoint, as arm64's up to 6.18, has no such records.
 * sonde_faulted  fexit/handle_mm_fault: how long that took; only where durations are wanted, and where the kernel lets
 *                it be attached.
 *
 * They are many, and so they go into the CPU's ring as calls do. That is safe because nothing that writes to it can be at
 * work on this CPU then, and none can begin: the fault came while the CPU ran the process's own code and not the
 * kernel's, so no call's record has been begun; while the program runs the CPU is not given to another thread (x86 calls
 * the tracepoint with interrupts off, and tracepoints have preemption off); and memory that sonde_exit itself cannot
 * read makes no fault from user mode.
 */

/* A record's duration before its fault has ended: this bit and the record's time, which no other of the ring has. */
#define FAULT_PENDING (1ULL << 63)
/* In a duration: something had to be read from a disk. */
#define FAULT_MAJOR (1ULL << 62)

/* enum fault_flag and enum vm_fault_reason, which have not changed since Linux 5.4. */
#define FAULT_FLAG_USER 0x40
#define VM_FAULT_MAJOR 0x4
#define VM_FAULT_RETRY 0x400

/* The last fault of a thread, and where its record begins. */
struct fault {
	__u64 mark;	/* what stands in the record for its duration; zero: it has ended */
	__u64 address;
	__u64 head;
	__u32 cpu;
	__u32 spare;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fault);
} faults SEC(".maps");

SEC("tp_btf/page_fault_user")
int BPF_PROG(sonde_fault, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct cgroup *g = cgroup_of(t);
	__u64 head, *numbers;
	struct record *r;
	struct ring *ring;
	struct fault *f;

	if (!within(g) || !is_wanted(t, g))
		return 0;
	r = next_record(&ring, &head, LOST_FAULT);
	if (!r)
		return 0;
	begin(r, t, g, KIND_FAULT);
	numbers = (__u64 *)(r + 1);
	numbers[0] = address;
#if defined(__TARGET_ARCH_x86)
	numbers[1] = regs->ip;
#else
	numbers[1] = regs->pc;
#endif
	numbers[2] = error;
	r->numbers = 3;
	r->size = sizeof(*r) + 3 * 8;
	f = timed ? bpf_task_storage_get(&faults, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) : 0;
	if (f) {
		f->mark = r->time | FAULT_PENDING;
		f->address = address;
		f->head = head;
		f->cpu = bpf_get_smp_processor_id();
		r->took = f->mark;
	}
	publish(ring, head, behind(head, sizeof(*r) + 3 * 8));
	return 0;
}

/*
 * The record may have been read by now, and its place be another's: it is changed only if it still has its mark, and in
 * one step. That is why this program may write to a ring though another thread may be let onto its CPU meanwhile.
 */
SEC("fexit/handle_mm_fault")
int BPF_PROG(sonde_faulted, void *vma, unsigned long address, unsigned int flags, void *regs, unsigned int ret)
{
	struct task_struct *t = bpf_get_current_task_btf();
	__u64 mark, took;
	struct record *r;
	struct ring *ring;
	struct fault *f;
	__u32 cpu;

	if (!(flags & FAULT_FLAG_USER) || (ret & VM_FAULT_RETRY))
		return 0;
	f = bpf_task_storage_get(&faults, t, 0, 0);
	if (!f || !f->mark || f->address != address)
		return 0;
	mark = f->mark;
	f->mark = 0;
	took = bpf_ktime_get_boot_ns() - (mark & ~FAULT_PENDING);
	if (ret & VM_FAULT_MAJOR)
		took |= FAULT_MAJOR;
	cpu = f->cpu;
	ring = bpf_map_lookup_elem(&rings, &cpu);
	if (!ring)
		return 0;
	/* Records begin at multiples of 8, which the verifier wants to see. */
	r = (struct record *)((char *)ring + RING_HEAD + (f->head & ring_mask & ~7ULL));
	__sync_val_compare_and_swap(&r->took, mark, took);
	return 0;
}
