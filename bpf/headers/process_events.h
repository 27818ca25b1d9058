/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Follows the processes of a captured Pod (docs/adr/0021-processes.md). Part of packets.bpf.c; loaded and attached only if
 * packets name processes.
 *
 * sonde_fork    tp_btf/sched_process_fork: a child has all sockets of its parent, which voids the parent's claims.
 * sonde_exec    tp_btf/sched_process_exec: a child that has kept no socket makes the claims on open sockets valid again, if it has
 *               none in flight over a Unix socket either.
 * sonde_rename  tp_btf/task_rename: a process has a new name.
 * sonde_end     tp_btf/sched_process_exit: a process has ended. If it may have sockets of its parent, claims on them stay void.
 *
 * All need Linux 5.17 (bpf_loop), and run for each process of the node. Input: the constants of processes.h. Output: records.
 * Lost: a child without a free record makes all claims void (blind). Tests: agents/capture/processes.
 */
#ifndef SONDE_PROCESS_EVENTS_H
#define SONDE_PROCESS_EVENTS_H

#define MAX_FILES 4096	/* descriptors that an exec looks at */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sonde_fork, struct task_struct *from, struct task_struct *to)
{
	struct task_struct___process *parent = (void *)from, *child = (void *)to;
	struct process *p, *c;
	__u32 count = 0;

	if (from->tgid == to->tgid || !is_pods(parent))
		return 0;
	p = process_of(parent);
	c = process_of(child);
	if (p && c && has_same_files(parent, child))
		p->tables = c->tables = ALWAYS;
	if (p) {
		__sync_fetch_and_add(&p->children, 1);
		count = __sync_fetch_and_add(&p->claim, 1ULL << 32) >> 32;
	}
	if (c) {
		c->parent = p ? (__u32)p->claim : 0;
		c->born = count + 1;
		c->user = (__u64)BPF_CORE_READ(child, real_cred, user);
		c->forked = __sync_fetch_and_add(&forks, 1) + 1;
	} else {
		void_all();
	}
	return 0;
}

static __always_inline struct process *parent_of(struct process *c)
{
	struct process *p = record_at(slot_of(c->parent));

	return c->parent && p && (__u32)p->claim == c->parent ? p : 0;
}

/* A child holds no socket of its parent any more. Those that it was the last to hold are closed, which is_open() sees. */
static __always_inline void release(struct process *c)
{
	struct process *p = parent_of(c);

	if (p)
		__sync_fetch_and_add(&p->children, -1);
	c->parent = 0;
	c->forked = 0;
}

/* Raises the fork count that claims need. Returns false if others change it again and again. */
static __always_inline bool raise_floor(struct process *p, __u32 to)
{
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__u32 floor = *(volatile __u32 *)&p->floor;

		if (floor >= to || __sync_val_compare_and_swap(&p->floor, floor, to) == floor)
			return true;
	}
	return false;
}

/*
 * A child ends that may hold sockets of its parent: they are closed later, and its own children may hold them, too. So the
 * parent's claims on them stay void.
 */
static __always_inline void end_child(struct process *c)
{
	struct process *p = parent_of(c);

	if (p && raise_floor(p, c->born))	/* else the child counts for ever, which also keeps them void */
		__sync_fetch_and_add(&p->children, -1);
}

struct search {
	struct file___process **files;
	bool found;
};

static long search_file(__u32 i, struct search *s)
{
	struct file___process *f = 0;

	bpf_probe_read_kernel(&f, sizeof(f), &s->files[i]);
	if (!socket_of(f) && !is_uring((void *)f))
		return 0;
	s->found = true;
	return 1;
}

/* Whether a process may have a socket of the Pod's network namespace, or an io_uring that another one can register sockets with. */
static __always_inline bool has_socket(struct task_struct___process *t)
{
	struct fdtable___process *table = BPF_CORE_READ(t, files, fdt);
	struct search s = { .files = BPF_CORE_READ(table, fd) };
	__u32 n = BPF_CORE_READ(table, max_fds);

	if (n > MAX_FILES)
		return true;
	bpf_loop(n, search_file, &s, 0);
	return s.found;
}

/*
 * Whether a user has sent descriptors over Unix sockets that nobody has received. A user has the count as long as it is not zero,
 * so that a count in freed memory only lacks sockets that are not in flight any more.
 */
static __always_inline bool has_sent(struct user_struct___flight *u)
{
	return u && (!bpf_core_field_exists(u->unix_inflight) || BPF_CORE_READ(u, unix_inflight));
}

/*
 * A child that has kept no socket starts another program. If it may have sent one that is still in flight, the socket has a file
 * although no process has a descriptor of it. So the parent's claims on its sockets stay void, as after the end of a child. A scan
 * that has begun before the child's fork still has no result (forked).
 */
static __always_inline void leave(struct process *c, struct task_struct___process *t)
{
	if (!has_sent((void *)c->user) && !has_sent(BPF_CORE_READ(t, real_cred, user))) {
		release(c);
		return;
	}
	end_child(c);
	c->parent = 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sonde_exec, struct task_struct *task)
{
	struct task_struct___process *t = (void *)task;
	__u32 tgid = task->tgid, *slot = bpf_map_lookup_elem(&processes, &tgid);
	struct process *p = slot ? record_at(*slot) : 0;

	if (!p)
		return 0;
	if (p->named)
		refresh(p, t);
	/* Children may have sockets of its parent, also if they have ended, and an io_uring is closed later. */
	if (p->parent && !p->children && !p->floor && !p->rings && !has_socket(t))
		leave(p, t);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(sonde_rename, struct task_struct *task, const char *comm)
{
	__u32 tgid = task->tgid, *slot;
	struct process *p;

	if (task->pid != task->tgid)
		return 0;
	slot = bpf_map_lookup_elem(&processes, &tgid);
	p = slot ? record_at(*slot) : 0;
	if (p && p->named)
		rename(p, (void *)task, comm);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sonde_end, struct task_struct *task)
{
	__u32 tgid = task->tgid, *slot;
	struct process *p;

	if (task->signal->live.counter > 0)
		return 0;
	slot = bpf_map_lookup_elem(&processes, &tgid);
	p = slot ? record_at(*slot) : 0;
	if (!p)
		return 0;
	if (bpf_map_delete_elem(&processes, &tgid)) /* another of the last threads was here first */
		return 0;
	end_child(p);
	p->used = 0;
	return 0;
}

#endif
