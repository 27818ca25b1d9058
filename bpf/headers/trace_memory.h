/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Page faults, a part of trace.bpf.c.
 *
 * sonde_fault      tp_btf/page_fault_user, Linux 5.12 on x86-64 (on arm64 later than 6.18): a record for each access of a
 *                  process to memory that is not mapped in its page tables.
 * sonde_fault_end  fexit/handle_mm_fault, Linux 5.12: writes the duration into that record; attached only for durations,
 *                  and where the kernel supports fexit.
 *
 * Input: the constants of trace.bpf.c. Output: records in the CPU's ring, because there are many. Lost: a record that finds
 * no room is counted in its ring, as LOST_FAULT; a fault that ends after its record was read has no duration. Tests:
 * agents/trace, memory_test.go.
 *
 * No other program can be writing to the CPU's ring, nor start to: the fault interrupted the process's own code, so no
 * call's record is being written; the CPU does not switch threads while the program runs (x86 calls the tracepoint with
 * interrupts off, and tracepoints disable preemption); and reads of sonde_exit that fail cause no fault from user mode.
 */

/* The duration in a record whose fault has not ended: this bit and the record's time, which is unique in the ring. */
#define FAULT_PENDING (1ULL << 63)
/* A bit of the duration: the fault needed a disk. */
#define FAULT_MAJOR (1ULL << 62)

/* enum fault_flag and enum vm_fault_reason, which have not changed since Linux 5.4. */
#define FAULT_FLAG_USER 0x40
#define VM_FAULT_MAJOR 0x4
#define VM_FAULT_RETRY 0x400

/* The last fault of a thread, and where its record is. */
struct fault {
	__u64 mark;	/* the record's duration so far; zero: the fault has ended */
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

	if (!in_pod(g) || !is_wanted(t, g))
		return 0;
	r = next_record(&ring, &head, LOST_FAULT);
	if (!r)
		return 0;
	init_record(r, t, g, KIND_FAULT);
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
		r->duration = f->mark;
	}
	publish(ring, head, next_head(head, sizeof(*r) + 3 * 8));
	return 0;
}

/*
 * The record may have been read and overwritten by now: it is changed only if it still has its mark, in one atomic step.
 * So this program may write to the ring although it can be preempted.
 */
SEC("fexit/handle_mm_fault")
int BPF_PROG(sonde_fault_end, void *vma, unsigned long address, unsigned int flags, void *regs, unsigned int ret)
{
	struct task_struct *t = bpf_get_current_task_btf();
	__u64 mark, duration;
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
	duration = bpf_ktime_get_boot_ns() - (mark & ~FAULT_PENDING);
	if (ret & VM_FAULT_MAJOR)
		duration |= FAULT_MAJOR;
	cpu = f->cpu;
	ring = bpf_map_lookup_elem(&rings, &cpu);
	if (!ring)
		return 0;
	/* Records start at multiples of 8: the mask proves it to the verifier. */
	r = (struct record *)((char *)ring + RING_HEAD + (f->head & ring_mask & ~7ULL));
	__sync_val_compare_and_swap(&r->duration, mark, duration);
	return 0;
}
