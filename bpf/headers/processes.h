/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * The processes of a captured Pod, and the pcapng options that name them in packets (docs/adr/0021-processes.md). Part of
 * packets.bpf.c.
 *
 * A record describes one process, or one reason why a packet has none. It has the options ready, so that a packet costs a
 * copy. A claim names a record: its slot, the slot's generation, and how often the process had forked. A socket keeps the claim
 * of its process (sockets.h). If the process has forked since, a child may hold the socket, too, and the claim is void. It is valid
 * again when no child can hold the socket any more, unless the child ended: then the process may have closed the socket before, and
 * only a scan can tell.
 *
 * Input: the constants below, the records of reasons, and the map containers. Output: the options in records. Lost: a process
 * without a free record has the reason TOO_MANY.
 */
#ifndef SONDE_PROCESSES_H
#define SONDE_PROCESSES_H

/* The Pod's cgroup as in trace.bpf.c; zero makes each process one of the Pod. */
volatile const __u64 pod_cgroup = 0;
volatile const __u32 pod_level = 0;
volatile const bool cgroup_v1 = false;

/* The depth of the node's PID namespace. */
volatile const __u32 node_level = 0;

/* Slots of records: reasons, then groups of processes that share a socket, which user space writes, then processes. */
#define SLOT_BITS 11
#define SLOTS (1 << SLOT_BITS)
#define FIRST_GROUP 64
#define FIRST_PROCESS 320

#define COMMENT_MAX 168	/* bytes of a comment, with a zero at its end */
#define OPTIONS_MAX 280	/* bytes of both options; a multiple of 8 */
#define NAME_MAX 64	/* bytes of a container's name, with a zero at its end */
#define COMM_LEN 16

/* Option codes of pcapng, and the layout of the custom option (internal/wire/pcapng/process.go). */
#define OPTION_COMMENT 1
#define OPTION_CUSTOM 2989
#define ENTERPRISE 32473
#define OPTION_VERSION 1
#define CUSTOM_MAX (4 + sizeof(struct custom) + NAME_MAX)

/* Why a packet names no process. */
enum reason {
	REASON_NONE,
	REASON_NOT_IP,
	REASON_NO_SENDER,	/* no socket sent it */
	REASON_NO_RECEIVER,	/* no socket receives it */
	REASON_KERNEL,	/* a socket of the kernel */
	REASON_CLOSED,	/* a connection in TIME_WAIT */
	REASON_OTHER_HOST,
	REASON_OUTSIDE,	/* a process outside of the Pod */
	REASON_UNSEEN,	/* a socket without a claim */
	REASON_FORKED,	/* the socket's process has forked */
	REASON_PASSED,	/* a process may have got the socket from another one */
	REASON_SHARED,
	REASON_PROTOCOL,	/* neither TCP nor UDP */
	REASON_FRAGMENT,
	REASON_EXTENSION,	/* an IPv6 extension header */
	REASON_MULTICAST,
	REASON_NETFILTER,	/* rules may send it to another socket */
	REASON_BALANCED,	/* a program chooses among sockets of one port */
	REASON_TOO_MANY,
	REASON_ENDED,	/* the socket's process ended long ago */
	REASON_IO_URING,	/* another process may have it in an io_uring */
	REASON_UNSETTLED,	/* scans have had no result for long */
	REASON_COUNT,
};

const enum reason *reason_type __attribute__((unused));

/* The kernel's types, as in kernel.h; the suffix avoids conflicts with other headers. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct user_struct___flight {
	unsigned long unix_inflight;
};

struct cred___process {
	kuid_t euid;
	struct user_struct___flight *user;
};

struct file___process {
	struct inode___process *f_inode;
	void *private_data;
};

struct inode___process {
	unsigned short i_mode;
};

struct fdtable___process {
	unsigned int max_fds;
	struct file___process **fd;
};

struct files_struct___process {
	struct fdtable___process *fdt;
};

struct task_struct___process {
	int tgid;
	__u64 start_time;
	const struct cred___process *real_cred;
	struct task_struct___process *group_leader;
	struct files_struct___process *files;
	struct css_set *cgroups;
	struct pid *thread_pid;
	struct signal_struct *signal;
	char comm[COMM_LEN];
};

#pragma clang attribute pop

/* The custom option from its enterprise number on. A container's name, or the PIDs of a shared socket, follow. */
struct custom {
	__u32 enterprise;
	__u8 version;
	__u8 reason;
	__u16 spare;
	__u32 pid;
	__u32 inner_pid;	/* in the process's own PID namespace */
	__u32 uid;
	char comm[COMM_LEN];
};

struct options {
	__u32 length;
	__u32 spare;
	__u8 bytes[OPTIONS_MAX];
};

struct process {
	__u64 claim;
	__u32 tgid;	/* in the first PID namespace */
	__u32 used;
	__u64 start;
	/* The process that forked it, while it may hold sockets of that one; zero otherwise. */
	__u32 parent;
	/* Processes forked by it that may hold its sockets. */
	__u32 children;
	__u64 forked;	/* the number of its fork */
	__u64 container;	/* the container's cgroup */
	__u32 scan;	/* the last scan that has refreshed it */
	__u32 writing;	/* whether options are written */
	__u32 current;	/* how often options were written; the lowest bit is the index of the valid ones */
	__u32 named;	/* whether it has options */
	__u32 uid;	/* in its options */
	__u32 rings;	/* whether it has registered files with an io_uring (uring_files.h) */
	__u32 tables;	/* the last scan that has found that it may share a table of files, or ALWAYS (sockets.h) */
	__u32 born;	/* the fork count of its parent after its fork */
	/* Claims with a lower fork count stay void until a scan: a child that had the sockets has ended (process_events.h). */
	__u32 floor;
	__u32 begun;	/* current, or one more while options are written */
	__u64 user;	/* the address of its user after its fork (process_events.h) */
	struct options options[2];
};

const struct process *process_type __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct process);
} records SEC(".maps");

/* Slots of living processes, by tgid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} processes SEC(".maps");

struct name {
	char text[NAME_MAX];
};

/* Names of containers by cgroup. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, struct name);
} containers SEC(".maps");

__u32 next_slot = 0;
__u64 forks = 0;	/* of the Pod's processes */
__u64 unnamed = 0;	/* options without a container's name */

static const char with_container[] = "process: %s, pid %u, uid %u, container %s";
static const char without_container[] = "process: %s, pid %u, uid %u";

static __always_inline struct process *record_at(__u32 slot)
{
	return bpf_map_lookup_elem(&records, &slot);
}

static __always_inline __u32 slot_of(__u64 claim)
{
	return claim & (SLOTS - 1);
}

static __always_inline struct cgroup *cgroup_of(struct task_struct___process *t)
{
	struct css_set *set = BPF_CORE_READ(t, cgroups);
	struct cgroup_subsys_state *css = 0;

	if (!cgroup_v1)
		return BPF_CORE_READ(set, dfl_cgrp);
	bpf_probe_read_kernel(&css, sizeof(css), &set->subsys[bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id)]);
	return css ? BPF_CORE_READ(css, cgroup) : 0;
}

/* The number of g's ancestor, or g itself, at a level; zero if g is above it. BTF does not have the array's end. */
static __always_inline __u64 ancestor(struct cgroup *g, __u32 level)
{
	struct cgroup *above = 0;
	__u64 id = 0;

	if (!g || BPF_CORE_READ(g, level) < (int)level)
		return 0;
	if (!bpf_core_field_exists(g->ancestors)) {
		bpf_probe_read_kernel(&id, sizeof(id),
				      (void *)g + bpf_core_field_offset(struct cgroup___ids, ancestor_ids) + level * 8);
		return id;
	}
	bpf_probe_read_kernel(&above, sizeof(above), (void *)g + bpf_core_field_offset(struct cgroup, ancestors) + level * 8);
	return above ? BPF_CORE_READ(above, kn, id) : 0;
}

static __always_inline bool is_pods(struct task_struct___process *t)
{
	return !pod_cgroup || ancestor(cgroup_of(t), pod_level) == pod_cgroup;
}

/* The number of a process in the PID namespace at a level; zero if it has none there. */
static __always_inline __u32 pid_at(struct pid *p, __u32 level)
{
	int nr = 0;

	if (p && level <= BPF_CORE_READ(p, level))
		bpf_probe_read_kernel(&nr, sizeof(nr), &p->numbers[level & 31].nr);
	return nr;
}

struct taking {
	__u32 slot;
	bool taken;
};

static long try_record(__u32 i, struct taking *t)
{
	__u32 slot = FIRST_PROCESS + __sync_fetch_and_add(&next_slot, 1) % (SLOTS - FIRST_PROCESS);
	struct process *p = record_at(slot);

	t->slot = slot;
	t->taken = p && !__sync_val_compare_and_swap(&p->used, 0, 1);
	return t->taken;
}

/*
 * Takes a free record. Records are taken in turn, so that those of ended processes stay for a while. Nearly always the first one is
 * free, but processes that were there at the start have records in a row.
 */
static __always_inline struct process *take_record(__u32 *slot)
{
	struct taking t = {};
	struct process *p;

	bpf_loop(SLOTS - FIRST_PROCESS, try_record, &t, 0);
	p = record_at(t.slot);
	if (!p || !t.taken)
		return 0;
	p->claim = (__u32)(p->claim + SLOTS) | t.slot; /* the next generation */
	p->parent = p->children = p->named = p->scan = p->rings = p->tables = p->born = p->floor = 0;
	p->forked = p->user = 0;
	p->options[0].length = p->options[1].length = 0; /* of the record's former process */
	*slot = t.slot;
	return p;
}

/* Whether the last thread of a process has ended or ends. */
static __always_inline bool has_ended(struct task_struct___process *t)
{
	return BPF_CORE_READ(t, signal, live.counter) <= 0;
}

/* Returns the record of a process, which may be new; zero if none is free, or if the process has ended and has none. */
static __always_inline struct process *process_of(struct task_struct___process *t)
{
	__u64 start = BPF_CORE_READ(t, group_leader, start_time);
	__u32 tgid = BPF_CORE_READ(t, tgid), slot, *known;
	struct process *p;

	known = bpf_map_lookup_elem(&processes, &tgid);
	if (known) {
		p = record_at(*known);
		if (p && p->start == start)
			return p;
		bpf_map_delete_elem(&processes, &tgid); /* the end of another process with this number was missed */
	}
	p = take_record(&slot);
	if (!p)
		return 0;
	p->tgid = tgid;
	p->start = start;
	if (!bpf_map_update_elem(&processes, &tgid, &slot, 1)) { /* BPF_NOEXIST */
		/*
		 * A scan finds a process until its files are closed. If the process has ended before, nothing else frees the record
		 * (sonde_end). As the result is used, this is a full barrier between the update and the look.
		 */
		if (!__sync_fetch_and_add(&p->used, 0) || !has_ended(t))
			return p;
		if (!bpf_map_delete_elem(&processes, &tgid))
			p->used = 0;
		return 0;
	}
	p->used = 0; /* another thread was faster */
	known = bpf_map_lookup_elem(&processes, &tgid);
	return known ? record_at(*known) : 0;
}

/* Makes a name plain ASCII: it may hold any bytes, and a comment must be UTF-8. */
static __always_inline void clean(char *comm)
{
#pragma unroll
	for (int i = 0; i < COMM_LEN; i++) {
		__u8 c = comm[i];

		if (c && (c < ' ' || c > '~'))
			comm[i] = '?';
	}
	comm[COMM_LEN - 1] = 0;
}

/* Writes the options of a process behind its valid ones. */
static __always_inline void write_options(struct options *o, struct process *p, struct custom *c)
{
	struct name *name = bpf_map_lookup_elem(&containers, &p->container);
	__u64 values[4] = { (__u64)c->comm, c->pid, c->uid, (__u64)name };
	__u64 at, copied = 0;
	long n;

#pragma unroll
	for (int i = 0; i < OPTIONS_MAX / 8; i++)
		((__u64 *)o->bytes)[i] = 0;
	if (name)
		n = bpf_snprintf((char *)o->bytes + 4, COMMENT_MAX, with_container, values, sizeof(values));
	else
		n = bpf_snprintf((char *)o->bytes + 4, COMMENT_MAX, without_container, values, sizeof(values) - 8);
	if (n < 1 || n > COMMENT_MAX)
		return;
	*(__u16 *)o->bytes = OPTION_COMMENT;
	*(__u16 *)(o->bytes + 2) = n - 1;
	at = 4 + ((n + 2) & ~3ULL);
	barrier_var(at);
	if (at > OPTIONS_MAX - CUSTOM_MAX)
		return;
	__builtin_memcpy(o->bytes + at + 4, c, sizeof(*c));
	if (name) {
		long read = bpf_probe_read_kernel_str(o->bytes + at + 4 + sizeof(*c), NAME_MAX, name->text);

		copied = read > 0 ? read - 1 : 0;
	}
	*(__u16 *)(o->bytes + at) = OPTION_CUSTOM;
	*(__u16 *)(o->bytes + at + 2) = sizeof(*c) + copied;
	o->length = at + 4 + ((sizeof(*c) + copied + 3) & ~3ULL);
}

/* Writes the options of a process anew. comm is its name, from the kernel's memory. */
static __always_inline void rename(struct process *p, struct task_struct___process *t, const char *comm)
{
	struct task_struct___process *leader = BPF_CORE_READ(t, group_leader);
	struct pid *pid = BPF_CORE_READ(leader, thread_pid);
	struct custom c = { .enterprise = ENTERPRISE, .version = OPTION_VERSION };

	if (__sync_lock_test_and_set(&p->writing, 1)) {
		p->scan = 0; /* the next scan does it */
		return;
	}
	bpf_probe_read_kernel_str(c.comm, sizeof(c.comm), comm);
	clean(c.comm);
	c.pid = pid_at(pid, node_level);
	c.inner_pid = pid_at(pid, pid ? BPF_CORE_READ(pid, level) : 0);
	c.uid = p->uid = BPF_CORE_READ(leader, real_cred, euid.val);
	p->container = pod_cgroup ? ancestor(cgroup_of(leader), pod_level + 1) : 0;
	/* As the results are used, these are full barriers: readers notice a write before it begins, and find complete options. */
	write_options(&p->options[(__sync_fetch_and_add(&p->begun, 1) + 1) & 1], p, &c);
	p->named = __sync_fetch_and_add(&p->current, 1) | 1;
	if (p->container && !bpf_map_lookup_elem(&containers, &p->container))
		__sync_fetch_and_add(&unnamed, 1);
	__sync_lock_test_and_set(&p->writing, 0);
}

static __always_inline void refresh(struct process *p, struct task_struct___process *t)
{
	struct task_struct___process *leader = BPF_CORE_READ(t, group_leader);

	rename(p, t, (const char *)leader + bpf_core_field_offset(struct task_struct___process, comm));
}

/* Returns a process's claim on a socket that it has now, or the reason why it has none. */
static __always_inline __u64 claim_of(struct task_struct___process *t)
{
	struct process *p;

	if (!is_pods(t))
		return REASON_OUTSIDE;
	p = process_of(t);
	if (!p)
		return has_ended(t) ? REASON_ENDED : REASON_TOO_MANY;
	if (!p->named || p->uid != BPF_CORE_READ(t, group_leader, real_cred, euid.val))
		refresh(p, t);
	if (!p->named) /* another thread writes the options at this moment */
		return REASON_UNSEEN;
	return p->claim;
}

#endif
