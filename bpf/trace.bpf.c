/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * The system calls of one Pod, docs/adr/0008-trace-engine.md.
 *
 * program      attach point, minimum kernel                 output
 * sonde_exit   tp_btf/sys_exit, Linux 5.12                  a record for each call that ends, with result and arguments
 * sonde_enter  tp_btf/sys_enter, Linux 5.12                 when a call began; attached only for durations
 * sonde_exec   tp_btf/sched_process_exec, Linux 5.12        a record: which program was started, with which arguments
 * sonde_fork   tp_btf/sched_process_fork, Linux 5.12        a record: which process or thread made which
 * sonde_end    tp_btf/sched_process_exit, Linux 5.12        a record: a thread ended, with its exit code
 * sonde_tasks  iter/task, Linux 5.8                         the cgroup of each process of the node; read, not attached
 * sonde_levels iter/task, Linux 5.8                         the cgroups that one process is in; read, not attached
 * sonde_files  iter/task, Linux 5.8                         the Pod's descriptors that an exec keeps; read, not attached
 *
 * trace_filter.h selects processes by container and command. Programs of single groups, attached only on request, are in
 * trace_memory.h, trace_signal.h, trace_network.h and trace_uring.h.
 *
 * Input: the constants below and the table of calls. Output: records of calls and page faults in one ring per CPU, other
 * records in the ring rare. Lost: a record that finds no room is counted in its ring, by call, or in rare_lost; a call at
 * which the program runs already is counted by the kernel (recursion_misses). Calls of 32-bit programs and of x32 are counted
 * in the ring's counter, and not recorded. Tests: agents/trace and agents/trace/kernel.
 */
#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "ring.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define MAX_CALLS 512	/* of both architectures; a power of two */
#define MAX_PATH 4096
#define MAX_ARGV 4096
#define MAX_ADDRESS 128	/* of a socket; sizeof(struct sockaddr_storage) */
#define MAX_NUMBERS 6
#define IO_URING_SETUP 425	/* of both architectures */
#define IO_URING_ENTER 426
#define EXECVE32 11	/* the number of execve for 32-bit programs, of both architectures */
#define EXECVE_X32 (0x40000000 | 520)
#define ENOSYS 38
#define LOST_FAULT (LOST_KINDS - 1)	/* lost page faults are counted here: no call has so high a number */

/* The longest record: head, an operation of an io_uring, an address, two paths. The slack behind the ring's end has room for it. */
#define MAX_RECORD (sizeof(struct record) + MAX_OPERATION + MAX_ADDRESS + 2 * (MAX_PATH + 8))
#define MAX_OPERATION 96	/* more than the numbers of a call */

/* The number of the kernfs node of the Pod's cgroup, on cgroup v1 of the pids controller's. Zero matches nothing. */
volatile const __u64 cgroup_id = 0;
volatile const bool cgroup_v1 = false;

/*
 * The level of the node's PID namespace: 0, unless the node is a container itself. Records have the node's numbers of
 * processes, which its /proc has too.
 */
volatile const __u32 node_level = 0;

/* The level of the Pod's cgroup. */
volatile const __u32 cgroup_level = 0;

/* For sonde_levels: the process, in the reader's PID namespace. */
volatile const __u32 levels_of = 0;

/* Whether operations of io_urings are wanted, but the kernel's tracepoints for them are unknown. */
volatile const bool uring_missing = false;

/* Operations of io_urings that are not recorded. */
__u64 uring_lost = 0;

/* Operations of Linux AIO, which are not recorded. */
__u64 aio_lost = 0;

/* Whether sonde_enter is attached. */
volatile const bool timed = false;

/* The shortest duration of a call that is recorded, in nanoseconds; needs timed. */
volatile const __u64 min_latency = 0;

/* Says what is recorded of a call. A row of zeros is a call that is not recorded. */
struct row {
	__u8 wanted;
	__u8 numbers;	/* how many arguments */
	__u8 first;	/* index of the argument that is a path, plus one; zero: none */
	__u8 second;
	__u8 flags;	/* ROW_... */
	__u8 address;	/* index of the argument that is a socket's address, plus one; zero: none */
	__u8 length;	/* index of the address's length, plus one; zero: the address is the two descriptors of socketpair */
	__u8 spare;
};

/*
 * A result of zero is not recorded. It is returned in clone's child and in exec's new program, where the arguments are
 * gone; sonde_fork and sonde_exec record both.
 */
#define ROW_NOT_ZERO 1
/* The kernel writes the address if the call succeeds, and its length to where the argument points. */
#define ROW_ADDRESS_OUT 2
/* The result is the number of operations of Linux AIO that the call has submitted. */
#define ROW_SUBMITS 4

volatile const struct row calls[MAX_CALLS] = {};

/* The head of a record. Its numbers follow, 8 bytes each, then its address, then its strings. */
struct record {
	__u32 size;	/* of the whole record, a multiple of 8 */
	__u16 call;	/* number of the system call */
	__u8 kind;
	__u8 numbers;
	__u64 time;	/* when the call ended, in nanoseconds since boot */
	__u64 duration;	/* nanoseconds; zero where it was not measured. Of a fork: since its call began */
	__s64 ret;
	__u64 cgroup;
	__u32 pid;	/* in the node's PID namespace */
	__u32 tid;
	__u32 inner_pid;	/* in the process's own PID namespace */
	__u32 inner_tid;
	__u32 uid;
	__u32 parent;	/* of a fork: the parent process */
	char comm[16];
	__u16 first;	/* lengths of the strings with their zero; each starts at a multiple of 8 */
	__u16 second;
	__u16 address;	/* length of a socket's address, which starts at a multiple of 8, too */
	__u16 last;	/* of an exit: whether the process has no other thread left */
};

enum kind {
	KIND_CALL = 1,
	KIND_EXEC,
	KIND_FORK,
	KIND_EXIT,
	KIND_FAULT,
	KIND_SIGNAL,
	KIND_OOM,
	KIND_CONNECTION,
	KIND_RETRANSMIT,
	KIND_RESET,
	KIND_URING_SUBMIT,
	KIND_URING_END,
};

#define MAX_KINDS 16	/* a power of two */

/* The output of sonde_tasks for each process. */
struct task {
	__u32 pid;		/* in the reader's PID namespace */
	__u32 spare;
	__u64 cgroup;
};

/* The output of sonde_files for a word of a process's table of files, if it has descriptors without a close-on-exec flag. */
struct kept_file {
	__u32 pid;		/* in the node's PID namespace */
	__u32 first;		/* the first of 64 descriptors */
	__u64 open;		/* a bit for each of them; zero: the process may have others, from the first one on */
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct fdtable {
	unsigned int max_fds;
	unsigned long *close_on_exec;
	unsigned long *open_fds;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct___files {
	struct files_struct *files;
};

#pragma clang attribute pop

#define MAX_LEVELS 64

/* The output of sonde_levels for each cgroup, from the process's own to the root. */
struct cgroup_entry {
	__u64 cgroup;
	__u32 depth;		/* its level */
	__u32 pid_level;	/* of the reader's PID namespace */
	char name[256];		/* NAME_MAX + 1 */
};

/* Keeps the types in BTF, from which the Go side is generated. */
const struct record *record_type __attribute__((unused));
const struct task *task_type __attribute__((unused));
const struct kept_file *kept_file_type __attribute__((unused));
const struct cgroup_entry *cgroup_entry_type __attribute__((unused));
const enum kind *kind_type __attribute__((unused));

#define RARE_BYTES (2 << 20)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RARE_BYTES);
} rare SEC(".maps");

/* Records that found no room in rare, by kind. */
__u64 rare_lost[MAX_KINDS] = {};

/*
 * The last call that a thread has begun. Some calls end without sonde_exit noticing it, such as an execve that succeeds, and one of 32
 * bits. The next call that ends may then be one that seccomp has answered, and has no beginning: its number tells.
 */
struct call_start {
	__u64 time;
	__u32 call;	/* MAX_CALLS if it is one of 32 bits */
	__u32 spare;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct call_start);
} call_starts SEC(".maps");

static __always_inline struct cgroup *cgroup_of(struct task_struct *t)
{
	if (!cgroup_v1)
		return t->cgroups->dfl_cgrp;
	return t->cgroups->subsys[bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id)]->cgroup;
}

/* The number of g's ancestor, or g itself, at a level up to g's own. BTF does not have the array's end. */
static __always_inline __u64 ancestor(struct cgroup *g, __u32 level)
{
	struct cgroup *above = 0;
	__u64 id = 0;

	if (!bpf_core_field_exists(g->ancestors)) {
		bpf_probe_read_kernel(&id, sizeof(id),
				      (void *)g + bpf_core_field_offset(struct cgroup___ids, ancestor_ids) + level * 8);
		return id;
	}
	bpf_probe_read_kernel(&above, sizeof(above), (void *)g + bpf_core_field_offset(struct cgroup, ancestors) + level * 8);
	return above ? BPF_CORE_READ(above, kn, id) : 0;
}

/* Whether a cgroup is the Pod's or below it. Containers are one level below: that case needs no helper. */
static __always_inline bool in_pod(struct cgroup *g)
{
	int below = g->level - (int)cgroup_level;

	if (!cgroup_id || below < 0)
		return false;
	if (below == 1)
		return g->self.parent->cgroup->kn->id == cgroup_id;
	return ancestor(g, cgroup_level) == cgroup_id;
}

#include "trace_filter.h"

/* Keeps loads of numbers apart: the verifier rejects one load whose offset may differ. */
static __always_inline __u32 separate_load(__u32 nr)
{
	barrier_var(nr);
	return nr;
}

/*
 * The number of a thread in the PID namespace at a level; zero if it has none there. A helper costs a third of a record:
 * where the verifier accepts an array of any length (Linux 6.5), numbers at usual levels are loaded directly.
 */
static __always_inline __u32 pid_at(struct task_struct *t, __u32 level)
{
	struct pid *p = t->thread_pid;
	int nr = 0;

	if (!p || level > p->level)
		return 0;
	if (!bpf_core_field_size(p->numbers)) {
		switch (level) {
		case 0: return separate_load(p->numbers[0].nr);
		case 1: return separate_load(p->numbers[1].nr);
		case 2: return separate_load(p->numbers[2].nr);
		case 3: return separate_load(p->numbers[3].nr);
		}
	}
	bpf_probe_read_kernel(&nr, sizeof(nr), &p->numbers[level & 31].nr);
	return nr;
}

/* The number of a thread in its own PID namespace. */
static __always_inline __u32 inner_pid_of(struct task_struct *t)
{
	struct pid *p = t->thread_pid;

	return p ? pid_at(t, p->level) : 0;
}

static __always_inline __u32 node_pid(struct task_struct *t)
{
	return node_level ? pid_at(t, node_level) : t->pid;
}

static __always_inline void set_task(struct record *r, struct task_struct *t, struct cgroup *g)
{
	r->cgroup = g->kn->id;
	r->pid = node_pid(t->group_leader);
	r->tid = node_pid(t);
	r->inner_tid = inner_pid_of(t);
	r->inner_pid = t->pid == t->tgid ? r->inner_tid : inner_pid_of(t->group_leader);
	r->uid = t->real_cred->uid.val;
	/* As two words: a helper costs more than all other reads here. */
	((__u64 *)r->comm)[0] = *(__u64 *)&t->comm[0];
	((__u64 *)r->comm)[1] = *(__u64 *)&t->comm[8];
}

static __always_inline void init_record(struct record *r, struct task_struct *t, struct cgroup *g, enum kind kind)
{
	set_task(r, t, g);
	r->time = bpf_ktime_get_boot_ns();
	r->kind = kind;
	r->call = 0;
	r->numbers = 0;
	r->duration = 0;
	r->ret = 0;
	r->first = r->second = r->address = 0;
	r->parent = 0;
	r->size = sizeof(*r);
}

static __always_inline __u64 argument(struct pt_regs *regs, __u32 i)
{
#if defined(__TARGET_ARCH_x86)
	switch (i) {
	case 0: return regs->di;
	case 1: return regs->si;
	case 2: return regs->dx;
	case 3: return regs->r10;
	case 4: return regs->r8;
	default: return regs->r9;
	}
#else
	switch (i) { /* the offset of each must be constant at load time */
	case 0: return regs->orig_x0;
	case 1: return regs->regs[1];
	case 2: return regs->regs[2];
	case 3: return regs->regs[3];
	case 4: return regs->regs[4];
	default: return regs->regs[5];
	}
#endif
}

static __always_inline int syscall_number(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return (int)regs->orig_ax;
#else
	return regs->syscallno;
#endif
}

/* Whether the call is one of the 32-bit interface, where numbers mean other calls, and arguments are elsewhere. */
static __always_inline bool is_compat(struct task_struct *t, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return t->thread_info.status & 2; /* TS_COMPAT, set until the call returns */
#else
	return regs->pstate & 0x10; /* PSR_MODE32_BIT */
#endif
}

/*
 * Whether the call is one of x32, a 32-bit interface of x86-64: its number has bit 30 (__X32_SYSCALL_BIT) and not, as the -1 after
 * a sigreturn, bit 31. Most kernels do not have x32: there such a call does nothing.
 */
static __always_inline bool is_x32(__u32 call, long ret)
{
	return call >> 30 == 1 && ret != -ENOSYS;
}

/* Counts a 32-bit or x32 call of the Pod. The execve that started a 32-bit program is excluded: sonde_exec records it. */
static __always_inline void count_compat(struct task_struct *t, __u32 call, long ret)
{
	struct cgroup *g = cgroup_of(t);
	struct ring *ring;

	if (((call == EXECVE32 || call == EXECVE_X32) && !ret) || !in_pod(g) || !is_wanted(t, g))
		return;
	ring = ring_here();
	if (ring)
		__sync_fetch_and_add(&ring->counter, 1);
}

/*
 * Counts what is submitted to an io_uring. The kernel may take entries of a ring without a call (IORING_SETUP_SQPOLL): a new ring
 * counts as one, so that it is not silent.
 */
static __always_inline void count_uring(struct task_struct *t, __u32 call, long ret)
{
	struct cgroup *g;

	barrier_var(call); /* keeps the caller's bounds check where the verifier needs it */
	if (call == IO_URING_SETUP && ret >= 0)
		ret = 1;
	else if (call != IO_URING_ENTER || ret <= 0)
		return;
	g = cgroup_of(t);
	if (in_pod(g) && is_wanted(t, g))
		__sync_fetch_and_add(&uring_lost, ret);
}

/* Counts what io_submit has submitted, whether or not the call itself is recorded. */
static __always_inline void count_aio(struct task_struct *t, long ret)
{
	struct cgroup *g = cgroup_of(t);

	if (ret > 0 && in_pod(g) && is_wanted(t, g))
		__sync_fetch_and_add(&aio_lost, ret);
}

/*
 * Whether a signal has interrupted a call that the kernel may restart (include/linux/errno.h: ERESTARTSYS to
 * ERESTART_RESTARTBLOCK).
 */
static __always_inline bool is_interrupted(long ret)
{
	return ret <= -512 && ret >= -516;
}

/*
 * Where the next record goes in this CPU's ring; zero if there is no room for the longest record. The length of this one
 * is known only when its strings are read.
 */
static __always_inline struct record *next_record(struct ring **ring, __u64 *head, __u32 call)
{
	*ring = ring_here();
	return *ring ? reserve(*ring, head, MAX_RECORD, call) : 0;
}

/*
 * How full records of a kind may make rare. A process can start programs and threads as fast as it likes: it leaves room for
 * others' events, and starts of programs, whose records are large, for starts of threads.
 */
static __always_inline __u64 rare_share(enum kind kind)
{
	switch (kind) {
	case KIND_EXEC: return RARE_BYTES / 2;
	case KIND_FORK:
	case KIND_EXIT: return RARE_BYTES / 4 * 3;
	default: return RARE_BYTES;
	}
}

static __always_inline void *reserve_rare(__u64 size, enum kind kind)
{
	__u64 share = rare_share(kind);
	void *p = 0;

	if (share == RARE_BYTES || bpf_ringbuf_query(&rare, BPF_RB_AVAIL_DATA) + size <= share)
		p = bpf_ringbuf_reserve(&rare, size, 0);
	if (!p)
		__sync_fetch_and_add(&rare_lost[kind & (MAX_KINDS - 1)], 1);
	return p;
}

/* Reads a path from the process's memory. Returns its length with the zero. */
static __always_inline __u16 read_path(void *to, __u64 from)
{
	long n;

	if (!from)
		return 0;
	n = bpf_probe_read_user_str(to, MAX_PATH, (void *)from);
	return n > 0 ? n : 0;
}

/* Reads a socket's address, which the process or the kernel has written. Returns its length. */
static __always_inline __u32 read_address(void *to, struct pt_regs *regs, const volatile struct row *row, long ret)
{
	__u64 from = argument(regs, row->address - 1), n = 2 * sizeof(int);
	bool out = row->flags & ROW_ADDRESS_OUT;
	__u32 length = 0;

	if (!from || (out && ret < 0))
		return 0;
	if (row->length) {
		n = argument(regs, row->length - 1);
		if (out) {
			if (bpf_probe_read_user(&length, sizeof(length), (void *)n))
				return 0;
			n = length;
		}
		n = (__u32)n;
	}
	if (n > MAX_ADDRESS)
		n = MAX_ADDRESS;
	if (!n || bpf_probe_read_user(to, n, (void *)from))
		return 0;
	return n;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sonde_exit, struct pt_regs *regs, long ret)
{
	struct task_struct *t = bpf_get_current_task_btf();
	__u32 call = syscall_number(regs), size;
	const volatile struct row *row;
	__u64 head, now = 0, duration = 0;
	struct cgroup *g;
	struct record *r;
	__u32 length;
	struct ring *ring;

	if (is_compat(t, regs)) {
		count_compat(t, call, ret);
		return 0;
	}
	if (uring_missing)
		count_uring(t, call, ret);
	if (call >= MAX_CALLS) {
		if (is_x32(call, ret))
			count_compat(t, call, ret);
		return 0;
	}
	row = &calls[call];
	if (!row->wanted)
		return 0;
	if (row->flags & (ROW_NOT_ZERO | ROW_SUBMITS)) { /* one check for calls that have neither */
		if (row->flags & ROW_SUBMITS)
			count_aio(t, ret);
		else if (!ret)
			return 0;
	}
	g = cgroup_of(t);
	if (!in_pod(g) || !is_wanted(t, g))
		return 0;
	if (timed) {
		struct call_start *b = bpf_task_storage_get(&call_starts, t, 0, 0);

		now = bpf_ktime_get_boot_ns();
		if (b && b->time && b->call == call) {
			duration = now - b->time;
			b->time = 0;
			/*
			 * A call that began before the trace has no duration, and is recorded. So is one that a signal interrupts: the
			 * restarted call is one of its own, and signals can make each as short as a process likes.
			 */
			if (duration < min_latency && !is_interrupted(ret))
				return 0;
		}
	}
	r = next_record(&ring, &head, call);
	if (!r)
		return 0;
	set_task(r, t, g);
	r->time = timed ? now : bpf_ktime_get_boot_ns(); /* read once: nothing else here costs as much */
	r->call = call;
	r->kind = KIND_CALL;
	r->duration = duration;
	r->ret = ret;
	r->parent = 0;
	size = sizeof(*r);
	r->numbers = row->numbers;
#pragma unroll
	for (int i = 0; i < MAX_NUMBERS; i++) {
		if (i < row->numbers) {
			((__u64 *)(r + 1))[i] = argument(regs, i);
			size += 8;
		}
	}
	r->first = r->second = r->address = 0;
	if (row->address) {
		length = read_address((void *)r + size, regs, row, ret);
		r->address = length;
		size += (length + 7) & 0xf8;
	}
	if (row->first) {
		r->first = read_path((void *)r + size, argument(regs, row->first - 1));
		size += (r->first + 7) & 0x1ff8;
	}
	if (row->second) {
		r->second = read_path((void *)r + size, argument(regs, row->second - 1));
		size += (r->second + 7) & 0x1ff8;
	}
	r->size = size;
	publish(ring, head, next_head(head, size));
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sonde_enter, struct pt_regs *regs, long id)
{
	struct task_struct *t;
	struct cgroup *g;
	struct call_start *b;

	if ((__u64)id >= MAX_CALLS || !calls[id & (MAX_CALLS - 1)].wanted)
		return 0;
	t = bpf_get_current_task_btf(); /* after the check above: each helper costs some nanoseconds */
	g = cgroup_of(t);
	if (!in_pod(g) || !is_wanted(t, g))
		return 0;
	b = bpf_task_storage_get(&call_starts, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (b) {
		b->time = bpf_ktime_get_boot_ns();
		b->call = is_compat(t, regs) ? MAX_CALLS : id;
	}
	return 0;
}

/* A record of rare, with strings at fixed places. */
struct rare_exec {
	struct record r;
	char filename[MAX_PATH];
	char argv[MAX_ARGV];
};

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sonde_exec, struct task_struct *p, int old_pid, struct linux_binprm *bprm)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct cgroup *g = cgroup_of(t);
	struct rare_exec *e;
	__u64 from, length;
	enum command_change change;
	long n;

	if (!in_pod(g) || !in_container(g))
		return 0;
	change = on_exec(t, old_pid, bprm);
	if (change == CHANGE_NONE)
		return 0;
	e = reserve_rare(sizeof(*e), KIND_EXEC);
	if (!e)
		return 0;
	init_record(&e->r, t, g, KIND_EXEC);
	e->r.ret = change;
	n = bpf_probe_read_kernel_str(e->filename, sizeof(e->filename), bprm->filename);
	e->r.first = n > 0 ? n : 0;
	from = t->mm->arg_start;
	length = t->mm->arg_end - from;
	if (length > MAX_ARGV)
		length = MAX_ARGV;
	if (length && !bpf_probe_read_user(e->argv, length, (void *)from))
		e->r.second = length;
	e->r.size = sizeof(*e);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sonde_fork, struct task_struct *parent, struct task_struct *child)
{
	struct cgroup *g = cgroup_of(child);
	struct call_start *b;
	struct record *r;

	if (!in_pod(g) || !in_container(g) || !on_fork(parent, child))
		return 0;
	r = reserve_rare(sizeof(*r), KIND_FORK);
	if (!r)
		return 0;
	init_record(r, child, g, KIND_FORK);
	r->parent = node_pid(parent->group_leader);
	if (timed) {
		b = bpf_task_storage_get(&call_starts, bpf_get_current_task_btf(), 0, 0);
		if (b && b->time)
			r->duration = r->time - b->time; /* other threads of the parent go on while the kernel copies it */
	}
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sonde_end, struct task_struct *t)
{
	struct cgroup *g = cgroup_of(t);
	struct record *r;

	if (!in_pod(g) || !on_exit(t, g))
		return 0;
	r = reserve_rare(sizeof(*r), KIND_EXIT);
	if (!r)
		return 0;
	init_record(r, t, g, KIND_EXIT);
	r->ret = t->exit_code;
	r->last = t->signal->live.counter < 1; /* of threads that end at once, several may be the last one */
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

#include "trace_memory.h"
#include "trace_signal.h"
#include "trace_uring.h"

SEC("iter/task")
int sonde_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task, *reader = bpf_get_current_task_btf();
	struct task s = {};

	if (!t || t->pid != t->tgid)
		return 0;
	s.pid = pid_at(t, reader->thread_pid->level);
	if (!s.pid)
		return 0;
	s.cgroup = cgroup_of(t)->kn->id;
	bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
	return 0;
}

/* Words of a process's table of files. The verifier follows the loop for each, and their output fits into the kernel's buffer. */
#define MAX_FILE_WORDS 256

/*
 * /proc/PID/fdinfo has the flag, too. But to read it there makes the kernel ask the file itself for more: an epoll then polls the
 * files that it watches, and a FUSE server may never answer. The reader could not even be killed. iter/task_file would hold each
 * file for a moment: if its process closes the file in that moment, the reader releases it, which can wait for a FUSE server, too.
 */
SEC("iter/task")
int sonde_files(struct bpf_iter__task *ctx)
{
	unsigned long *open, *closed_by_exec, word, closed;
	struct task_struct *t = ctx->task;
	struct kept_file f = {};
	struct fdtable *table;
	__u32 words;

	if (!t || t->pid != t->tgid || !in_pod(cgroup_of(t)) || !in_command(t))
		return 0;
	table = BPF_CORE_READ((struct task_struct___files *)t, files, fdt);
	if (!table)
		return 0;
	words = (BPF_CORE_READ(table, max_fds) + 63) / 64;
	open = BPF_CORE_READ(table, open_fds);
	closed_by_exec = BPF_CORE_READ(table, close_on_exec);
	f.pid = node_pid(t);
	for (int i = 0; i < MAX_FILE_WORDS; i++) {
		if (i >= words)
			return 0;
		if (bpf_probe_read_kernel(&word, sizeof(word), open + i) || bpf_probe_read_kernel(&closed, sizeof(closed), closed_by_exec + i))
			return 0;
		f.open = word & ~closed;
		f.first = i * 64;
		if (f.open)
			bpf_seq_write(ctx->meta->seq, &f, sizeof(f));
	}
	if (words > MAX_FILE_WORDS) {
		f.first = MAX_FILE_WORDS * 64;
		f.open = 0;
		bpf_seq_write(ctx->meta->seq, &f, sizeof(f));
	}
	return 0;
}

/* All levels come from one reading of the process's cgroup: it may move meanwhile. */
SEC("iter/task")
int sonde_levels(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task, *reader = bpf_get_current_task_btf();
	struct cgroup_entry s = {};
	struct cgroup *g;

	if (!t || t->pid != t->tgid)
		return 0;
	s.pid_level = reader->thread_pid->level;
	if (pid_at(t, s.pid_level) != levels_of)
		return 0;
	g = cgroup_of(t);
	for (int i = 0; i < MAX_LEVELS && g; i++) {
		s.cgroup = BPF_CORE_READ(g, kn, id);
		s.depth = BPF_CORE_READ(g, level);
		s.name[0] = 0;
		bpf_probe_read_kernel_str(s.name, sizeof(s.name), BPF_CORE_READ(g, kn, name));
		bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
		g = BPF_CORE_READ(g, self.parent, cgroup);
	}
	return 0;
}

#include "trace_network.h"
