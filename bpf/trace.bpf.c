/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * The system calls of one Pod, docs/adr/0008-trace-engine.md.
 *
 * sonde_exit   tp_btf/sys_exit, Linux 5.12: one record for each call that ends, with its result and its arguments.
 * sonde_enter  tp_btf/sys_enter: keeps when a call began; attached only where durations are wanted.
 * sonde_exec   tp_btf/sched_process_exec: a program was started; what it is and with which arguments.
 * sonde_fork   tp_btf/sched_process_fork: who made which process or thread.
 * sonde_gone   tp_btf/sched_process_exit: a thread ended, and with which code.
 * sonde_tasks  iter/task, Linux 5.8: in which cgroups the processes of the node are, before anything is recorded.
 * trace_filter.h says whose calls are recorded, where only some of the Pod's are.
 *
 * Programs that are attached only where their group is asked for are in headers of their own: trace_memory.h,
 * trace_signal.h, trace_network.h.
 *
 * Input: the constants below and the table of calls. Output: records in rings (system calls and page faults; one ring
 * per CPU) and in rare (the others). What finds no room is not written, and counted in its ring, by call, or in
 * rare_lost. Tests: agents/trace.
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
#define EXECVE32 11	/* the number of execve for 32-bit programs, of both architectures */
#define LOST_FAULT (LOST_KINDS - 1)	/* what is lost is counted by call, and of page faults here: no call has so high a number */

/* The longest record: head, numbers, an address, two paths. The ring has so much room behind its end. */
#define MAX_RECORD (sizeof(struct record) + MAX_NUMBERS * 8 + MAX_ADDRESS + 2 * (MAX_PATH + 8))

/*
 * The Pod's cgroup by the number of its kernfs node. Zero matches nothing. On a cgroup v1 host it is that of the pids
 * controller.
 */
volatile const __u64 cgroup_id = 0;
volatile const bool cgroup_v1 = false;

/*
 * How deep the node's PID namespace lies: 0, but for a node that is a container itself. Numbers of processes are given
 * as the node sees them, so that its /proc has them.
 */
volatile const __u32 node_level = 0;

/* How deep the Pod's cgroup lies. */
volatile const __u32 cgroup_level = 0;

/* For sonde_tasks: which of a process's cgroups is told, counted from its own. */
volatile const __u32 cgroup_above = 0;

/* Whether sonde_enter is attached. */
volatile const bool timed = false;

/* The shortest duration of a call that is recorded, in nanoseconds; needs timed. */
volatile const __u64 min_latency = 0;

/* What is recorded of a call. A row of zeros is a call that nobody wants. */
struct row {
	__u8 wanted;
	__u8 numbers;	/* how many arguments */
	__u8 first;	/* one more than the argument that is a path; zero is none */
	__u8 second;
	__u8 flags;	/* ROW_... */
	__u8 address;	/* one more than the argument that is a socket's address; zero is none */
	__u8 length;	/* one more than that which is its length; zero: it is two descriptors, of socketpair */
	__u8 spare;
};

/*
 * A result of zero is not recorded: of clone it is the child's, of exec the new program's, where the arguments are no
 * more. Records of their own tell of both.
 */
#define ROW_NOT_ZERO 1
/* The kernel writes the address, where the call succeeds, and its length to where the argument points. */
#define ROW_ADDRESS_OUT 2

volatile const struct row calls[MAX_CALLS] = {};

/* A record begins so. Then come its numbers, 8 bytes each, then its address, then its strings. */
struct record {
	__u32 size;	/* of all, a multiple of 8 */
	__u16 call;	/* number of the system call */
	__u8 kind;
	__u8 numbers;
	__u64 time;	/* when the call ended, in nanoseconds since boot */
	__u64 took;	/* nanoseconds; zero where nobody asked */
	__s64 ret;
	__u64 cgroup;
	__u32 pid;	/* of the node */
	__u32 tid;
	__u32 inner_pid;	/* in their own PID namespace */
	__u32 inner_tid;
	__u32 uid;
	__u32 parent;	/* of a fork: the process that made this one */
	char comm[16];
	__u16 first;	/* lengths of the strings, with their zero; each begins at a multiple of 8 */
	__u16 second;
	__u16 address;	/* length of a socket's address, which begins so, too */
	__u16 spare;
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
};

#define MAX_KINDS 16	/* a power of two */

/* What sonde_tasks writes of each process. */
struct seen {
	__u32 pid;		/* in the reader's PID namespace */
	__u32 level;		/* of that */
	__u32 depth;		/* of the cgroup that is asked for */
	__u32 spare;
	__u64 cgroup;
};

/* So that the types are in BTF, from which the Go side is generated. */
const struct record *record_type __attribute__((unused));
const struct seen *seen_type __attribute__((unused));
const enum kind *kind_type __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} rare SEC(".maps");

/* What did not get into rare, by kind. */
__u64 rare_lost[MAX_KINDS] = {};

struct begun {
	__u64 time;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct begun);
} begins SEC(".maps");

static __always_inline struct cgroup *cgroup_of(struct task_struct *t)
{
	if (!cgroup_v1)
		return t->cgroups->dfl_cgrp;
	return t->cgroups->subsys[bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id)]->cgroup;
}

/* The number of the cgroup that lies above g, or is g, at a depth that g has. The array's end is not in BTF. */
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

/* Whether a cgroup is the Pod's or lies below it. Containers lie one below: that takes no helper. */
static __always_inline bool within(struct cgroup *g)
{
	int below = g->level - (int)cgroup_level;

	if (!cgroup_id || below < 0)
		return false;
	if (below == 1)
		return g->self.parent->cgroup->kn->id == cgroup_id;
	return ancestor(g, cgroup_level) == cgroup_id;
}

#include "trace_filter.h"

/* Keeps the load of a number apart from others: the verifier takes no load of what may lie at different places. */
static __always_inline __u32 apart(__u32 nr)
{
	barrier_var(nr);
	return nr;
}

/*
 * The number of a thread in the PID namespace at a depth; zero if it is in none so deep. A helper takes a third of what
 * is added to a call by its record: where the verifier knows that the array may have any length (Linux 6.5), numbers at
 * usual depths are loaded.
 */
static __always_inline __u32 number_at(struct task_struct *t, __u32 level)
{
	struct pid *p = t->thread_pid;
	int nr = 0;

	if (!p || level > p->level)
		return 0;
	if (!bpf_core_field_size(p->numbers)) {
		switch (level) {
		case 0: return apart(p->numbers[0].nr);
		case 1: return apart(p->numbers[1].nr);
		case 2: return apart(p->numbers[2].nr);
		case 3: return apart(p->numbers[3].nr);
		}
	}
	bpf_probe_read_kernel(&nr, sizeof(nr), &p->numbers[level & 31].nr);
	return nr;
}

/* The number of a thread in its own PID namespace. */
static __always_inline __u32 inner_of(struct task_struct *t)
{
	struct pid *p = t->thread_pid;

	return p ? number_at(t, p->level) : 0;
}

static __always_inline __u32 on_node(struct task_struct *t)
{
	return node_level ? number_at(t, node_level) : t->pid;
}

static __always_inline void about(struct record *r, struct task_struct *t, struct cgroup *g)
{
	r->cgroup = g->kn->id;
	r->pid = on_node(t->group_leader);
	r->tid = on_node(t);
	r->inner_tid = inner_of(t);
	r->inner_pid = t->pid == t->tgid ? r->inner_tid : inner_of(t->group_leader);
	r->uid = t->real_cred->uid.val;
	/* As two words: a helper takes longer than all that is read beside it. */
	((__u64 *)r->comm)[0] = *(__u64 *)&t->comm[0];
	((__u64 *)r->comm)[1] = *(__u64 *)&t->comm[8];
}

static __always_inline void begin(struct record *r, struct task_struct *t, struct cgroup *g, enum kind kind)
{
	about(r, t, g);
	r->time = bpf_ktime_get_boot_ns();
	r->kind = kind;
	r->call = 0;
	r->numbers = 0;
	r->took = 0;
	r->ret = 0;
	r->first = r->second = r->address = 0;
	r->parent = 0;
	r->size = sizeof(*r);
}

static __always_inline __u64 number(struct pt_regs *regs, __u32 i)
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
	switch (i) { /* of each one the place must be known where the program is loaded */
	case 0: return regs->orig_x0;
	case 1: return regs->regs[1];
	case 2: return regs->regs[2];
	case 3: return regs->regs[3];
	case 4: return regs->regs[4];
	default: return regs->regs[5];
	}
#endif
}

static __always_inline int call_of(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return (int)regs->orig_ax;
#else
	return regs->syscallno;
#endif
}

/* Whether the call is one of the 32-bit interface: its number means another one there, its arguments lie elsewhere. */
static __always_inline bool is_compat(struct task_struct *t, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	return t->thread_info.status & 2; /* TS_COMPAT, until the call is left */
#else
	return regs->pstate & 0x10; /* PSR_MODE32_BIT */
#endif
}

/* Counts a 32-bit call of the Pod, but for the one that has become a 32-bit program: sonde_exec tells of it. */
static __always_inline void count_compat(struct task_struct *t, __u32 call, long ret)
{
	struct cgroup *g = cgroup_of(t);
	struct ring *ring;

	if ((call == EXECVE32 && !ret) || !within(g) || !is_wanted(t, g))
		return;
	ring = ring_here();
	if (ring)
		__sync_fetch_and_add(&ring->own, 1); /* counts these calls, which are not recorded */
}

/*
 * Where in this CPU's ring the next record is to be written. The longest record must have some room: what this one will be
 * is known only when its strings are read.
 */
static __always_inline struct record *next_record(struct ring **ring, __u64 *head, __u32 call)
{
	*ring = ring_here();
	return *ring ? room_in(*ring, head, MAX_RECORD, call) : 0;
}

static __always_inline void *reserve(__u64 size, enum kind kind)
{
	void *p = bpf_ringbuf_reserve(&rare, size, 0);

	if (!p)
		__sync_fetch_and_add(&rare_lost[kind & (MAX_KINDS - 1)], 1);
	return p;
}

/* Reads a path from the process's memory; returns its length with the zero. */
static __always_inline __u16 path(void *to, __u64 from)
{
	long n;

	if (!from)
		return 0;
	n = bpf_probe_read_user_str(to, MAX_PATH, (void *)from);
	return n > 0 ? n : 0;
}

/* Reads a socket's address, as the process or the kernel has written it; returns its length. */
static __always_inline __u32 address(void *to, struct pt_regs *regs, const volatile struct row *row, long ret)
{
	__u64 from = number(regs, row->address - 1), n = 2 * sizeof(int);
	bool out = row->flags & ROW_ADDRESS_OUT;
	__u32 length = 0;

	if (!from || (out && ret < 0))
		return 0;
	if (row->length) {
		n = number(regs, row->length - 1);
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
	__u32 call = call_of(regs), size;
	const volatile struct row *row;
	__u64 head, now = 0, took = 0;
	struct cgroup *g;
	struct record *r;
	__u32 length;
	struct ring *ring;

	if (is_compat(t, regs)) {
		count_compat(t, call, ret);
		return 0;
	}
	if (call >= MAX_CALLS)
		return 0;
	row = &calls[call];
	if (!row->wanted || ((row->flags & ROW_NOT_ZERO) && !ret))
		return 0;
	g = cgroup_of(t);
	if (!within(g) || !is_wanted(t, g))
		return 0;
	if (timed) {
		struct begun *b = bpf_task_storage_get(&begins, t, 0, 0);

		now = bpf_ktime_get_boot_ns();
		if (b && b->time) {
			took = now - b->time;
			b->time = 0;
			/* What began before the trace may have been long: it is recorded. */
			if (took < min_latency)
				return 0;
		}
	}
	r = next_record(&ring, &head, call);
	if (!r)
		return 0;
	about(r, t, g);
	r->time = timed ? now : bpf_ktime_get_boot_ns(); /* asked once: nothing else in the record takes as long */
	r->call = call;
	r->kind = KIND_CALL;
	r->took = took;
	r->ret = ret;
	r->parent = 0;
	size = sizeof(*r);
	r->numbers = row->numbers;
#pragma unroll
	for (int i = 0; i < MAX_NUMBERS; i++) {
		if (i < row->numbers) {
			((__u64 *)(r + 1))[i] = number(regs, i);
			size += 8;
		}
	}
	r->first = r->second = r->address = 0;
	if (row->address) {
		length = address((void *)r + size, regs, row, ret);
		r->address = length;
		size += (length + 7) & 0xf8;
	}
	if (row->first) {
		r->first = path((void *)r + size, number(regs, row->first - 1));
		size += (r->first + 7) & 0x1ff8;
	}
	if (row->second) {
		r->second = path((void *)r + size, number(regs, row->second - 1));
		size += (r->second + 7) & 0x1ff8;
	}
	r->size = size;
	publish(ring, head, behind(head, size));
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sonde_enter, struct pt_regs *regs, long id)
{
	struct task_struct *t;
	struct cgroup *g;
	struct begun *b;

	if ((__u64)id >= MAX_CALLS || !calls[id & (MAX_CALLS - 1)].wanted)
		return 0;
	t = bpf_get_current_task_btf(); /* not of calls that nobody wants: each helper takes some nanoseconds */
	g = cgroup_of(t);
	if (!within(g) || !is_wanted(t, g))
		return 0;
	b = bpf_task_storage_get(&begins, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (b)
		b->time = bpf_ktime_get_boot_ns();
	return 0;
}

/* A record of rare with room for its strings. */
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
	enum turn turn;
	long n;

	if (!within(g) || !in_container(g))
		return 0;
	turn = on_exec(t, old_pid, bprm);
	if (turn == TURN_NONE)
		return 0;
	e = reserve(sizeof(*e), KIND_EXEC);
	if (!e)
		return 0;
	begin(&e->r, t, g, KIND_EXEC);
	e->r.ret = turn;
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
	struct record *r;

	if (!within(g) || !in_container(g) || !on_fork(parent, child))
		return 0;
	r = reserve(sizeof(*r), KIND_FORK);
	if (!r)
		return 0;
	begin(r, child, g, KIND_FORK);
	r->parent = on_node(parent->group_leader);
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sonde_gone, struct task_struct *t)
{
	struct cgroup *g = cgroup_of(t);
	struct record *r;

	if (!within(g) || !on_exit(t, g))
		return 0;
	r = reserve(sizeof(*r), KIND_EXIT);
	if (!r)
		return 0;
	begin(r, t, g, KIND_EXIT);
	r->ret = t->exit_code;
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

#include "trace_memory.h"
#include "trace_signal.h"

SEC("iter/task")
int sonde_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task, *reader = bpf_get_current_task_btf();
	struct seen s = {};
	struct cgroup *g;

	if (!t || t->pid != t->tgid)
		return 0;
	s.level = reader->thread_pid->level;
	s.pid = number_at(t, s.level);
	if (!s.pid)
		return 0;
	g = cgroup_of(t);
	if (g->level < (int)cgroup_above)
		return 0;
	s.depth = g->level - cgroup_above;
	s.cgroup = ancestor(g, s.depth);
	bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
	return 0;
}

#include "trace_network.h"
