/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Which of the Pod's processes are recorded: those of containers, and those of a command (docs/adr/0010-trace-filters.md).
 * Part of trace.bpf.c, which has cgroup_of and within.
 *
 * sonde_choose  iter/task, Linux 5.12: marks the processes of the command that run already.
 *
 * Input: the constants below, and the map left_out, which user space fills. What could not be marked, for want of memory,
 * is counted in chosen_lost.
 */
#ifndef SONDE_TRACE_FILTER_H
#define SONDE_TRACE_FILTER_H

#define MAP_HASH 1		/* BPF_MAP_TYPE_HASH */
#define MAX_LEFT_OUT 1024	/* cgroups; what is beyond, user space leaves out alone */
#define MAX_MARKS 65536		/* threads */
#define MAX_PARTS 32		/* of the command's path */
#define NAME_WORDS 32		/* a name has at most 255 bytes and a zero */
#define MAX_MOUNTS 4		/* one on top of the other */

/* Whether containers are named: only then left_out is asked. */
volatile const bool by_container = false;

/* Whether a command is named: only then tasks are marked, and asked for their mark. */
volatile const bool by_command = false;

/* Whether a process of the command stays one, whatever it becomes by exec. What it makes by fork always is one too. */
volatile const bool with_children = false;

/*
 * The parts of the command's path, the last one first; of a name, the name alone. The rest are zeros, so that eight bytes
 * are compared at a time.
 */
volatile const __u64 command_parts[MAX_PARTS][NAME_WORDS] = {};
volatile const __u32 command_depth = 0;

/* The path as a whole; zeros where the command is a name. */
volatile const __u64 command_path[NAME_WORDS] = {};

/* The name, if a thread's name can hold it. */
volatile const __u64 command_comm[2] = {};

/* The kernel's types, as in kernel.h, but for names that other parts may need too. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct qstr___filter {
	const unsigned char *name;
};

struct dentry___filter {
	struct dentry___filter *d_parent;
	struct qstr___filter d_name;
};

struct vfsmount___filter {
	struct dentry___filter *mnt_root;
};

struct mount___filter {
	struct mount___filter *mnt_parent;
	struct dentry___filter *mnt_mountpoint;
	struct vfsmount___filter mnt;
};

struct path___filter {
	struct vfsmount___filter *mnt;
	struct dentry___filter *dentry;
};

struct file___filter {
	struct path___filter f_path;
};

struct mm_struct___filter {
	struct file___filter *exe_file;
};

struct fs_struct___filter {
	struct path___filter root;
};

struct task_struct___filter {
	struct fs_struct___filter *fs;
};

#pragma clang attribute pop

/* cgroups of containers that nobody asked for; user space knows which they are. */
struct {
	__uint(type, MAP_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_LEFT_OUT);
	__type(key, __u64);
	__type(value, __u8);
} left_out SEC(".maps");

/*
 * Threads of the command's processes, by their numbers in the first PID namespace, from their beginning to their end. Not
 * in the tasks' storage: while a task is preempted in the use of its own, the kernel makes none for others of its CPU.
 */
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, MAX_MARKS);
	__type(key, __u32);
	__type(value, __u8);
} marks SEC(".maps");

/* How many threads sonde_choose has marked. */
__u64 chosen = 0;

/* Threads for which there was no room: what they do is missing. */
__u64 chosen_lost = 0;

/* What an exec was to the recording; the record's ret. */
enum turn {
	TURN_NONE,	/* a stranger's */
	TURN_STAYS,
	TURN_COMES,	/* the process was not recorded before */
	TURN_GOES,	/* it is not recorded from now on */
};

/* So that the type is in BTF. */
const enum turn *turn_type __attribute__((unused));

static __always_inline bool is_marked(__u32 tid)
{
	return bpf_map_lookup_elem(&marks, &tid);
}

static __always_inline bool put_mark(__u32 tid)
{
	__u8 one = 1;

	if (!bpf_map_update_elem(&marks, &tid, &one, 0))
		return true;
	__sync_fetch_and_add(&chosen_lost, 1);
	return false;
}

static __always_inline void take_mark(__u32 tid)
{
	bpf_map_delete_elem(&marks, &tid);
}

/* Whether a cgroup is that of a container that is recorded, as far as the kernel knows. */
static __always_inline bool in_container(struct cgroup *g)
{
	__u64 id;

	if (!by_container)
		return true;
	id = g->kn->id;
	return !bpf_map_lookup_elem(&left_out, &id);
}

static __always_inline bool of_command(struct task_struct *t)
{
	return !by_command || is_marked(t->pid);
}

/* Whether a task within the Pod's cgroup is recorded. */
static __always_inline bool is_wanted(struct task_struct *t, struct cgroup *g)
{
	return in_container(g) && of_command(t);
}

static __always_inline void read_name(__u64 *name, const void *from)
{
#pragma unroll
	for (int i = 0; i < NAME_WORDS; i++)
		name[i] = 0;
	bpf_probe_read_kernel_str(name, NAME_WORDS * 8, from);
}

/* Whether a dentry's name is a part of the command's path. */
static __always_inline bool is_part(struct dentry___filter *d, __u32 part, __u64 *name)
{
	read_name(name, BPF_CORE_READ(d, d_name.name));
#pragma unroll
	for (int i = 0; i < NAME_WORDS; i++)
		if (name[i] != command_parts[part][i])
			return false;
	return true;
}

static __always_inline struct mount___filter *mount_of(struct vfsmount___filter *m)
{
	return (void *)m - bpf_core_field_offset(struct mount___filter, mnt);
}

/* Whether the path of a file, from the process's root on, is the command's. It is compared from its end. */
static __always_inline bool is_at_path(struct task_struct *t, struct file___filter *f, __u64 *name)
{
	struct task_struct___filter *task = (void *)t;
	struct fs_struct___filter *fs = BPF_CORE_READ(task, fs);
	struct dentry___filter *top = BPF_CORE_READ(fs, root.dentry), *d = BPF_CORE_READ(f, f_path.dentry);
	struct mount___filter *top_mount = mount_of(BPF_CORE_READ(fs, root.mnt)), *m = mount_of(BPF_CORE_READ(f, f_path.mnt));

	/* One round more than there are parts: from the first of them up to the root. */
	for (__u32 i = 0; i <= MAX_PARTS; i++) {
#pragma unroll
		for (int n = 0; n < MAX_MOUNTS; n++) {
			if ((d == top && m == top_mount) || d != BPF_CORE_READ(m, mnt.mnt_root))
				break;
			d = BPF_CORE_READ(m, mnt_mountpoint);
			m = BPF_CORE_READ(m, mnt_parent);
		}
		if (i >= command_depth || i >= MAX_PARTS)
			return d == top && m == top_mount;
		if (!is_part(d, i, name))
			return false;
		d = BPF_CORE_READ(d, d_parent);
	}
	return false;
}

static __always_inline bool has_comm(struct task_struct *t)
{
	__u64 comm[2] = {};

	if (!command_comm[0])
		return false;
	bpf_probe_read_kernel_str(comm, sizeof(comm), t->group_leader->comm);
	return comm[0] == command_comm[0] && comm[1] == command_comm[1];
}

/* Whether a task's process is one of the command, by its executable or its name; name is room for one. */
static __always_inline bool is_command(struct task_struct *t, __u64 *name)
{
	struct mm_struct___filter *mm = (void *)t->mm;
	struct file___filter *exe = BPF_CORE_READ(mm, exe_file);

	if (command_path[0])
		return is_at_path(t, exe, name);
	return has_comm(t) || is_part(BPF_CORE_READ(exe, f_path.dentry), 0, name);
}

/* Whether a program was started by the command's path, which may be a link's or a script's. */
static __always_inline bool is_called(struct linux_binprm *bprm, __u64 *name)
{
	if (!command_path[0])
		return false;
	read_name(name, bprm->filename);
#pragma unroll
	for (int i = 0; i < NAME_WORDS; i++)
		if (name[i] != command_path[i])
			return false;
	return true;
}

/*
 * A program was started: whether its process is recorded from now on, and was before. The thread that starts one may not
 * be the first of its process: then it takes the number of that, which has ended.
 */
static __always_inline enum turn on_exec(struct task_struct *t, __u32 old_tid, struct linux_binprm *bprm)
{
	__u64 name[NAME_WORDS];
	bool was, is;

	if (!by_command)
		return TURN_STAYS;
	was = is_marked(old_tid);
	is = (with_children && was) || is_command(t, name) || is_called(bprm, name);
	if (was && (!is || old_tid != t->pid))
		take_mark(old_tid);
	if (is)
		put_mark(t->pid);
	if (!was)
		return is ? TURN_COMES : TURN_NONE;
	return is ? TURN_STAYS : TURN_GOES;
}

/* A thread or process was made: it is what its maker is, until it starts a program. */
static __always_inline bool on_fork(struct task_struct *parent, struct task_struct *child)
{
	if (!by_command)
		return true;
	if (!is_marked(parent->pid)) {
		take_mark(child->pid); /* of one that had its number, and was found at its end */
		return false;
	}
	put_mark(child->pid);
	return true;
}

/* A thread ends: whether that is recorded. */
static __always_inline bool on_exit(struct task_struct *t, struct cgroup *g)
{
	bool wanted = is_wanted(t, g);

	if (by_command)
		take_mark(t->pid);
	return wanted;
}

SEC("iter/task")
int sonde_choose(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	__u64 name[NAME_WORDS];

	/* What has no memory any more has ended. */
	if (!by_command || !t || !t->mm || !within(cgroup_of(t)) || is_marked(t->pid))
		return 0;
	if (!is_command(t, name) && !(with_children && is_marked(t->real_parent->pid)))
		return 0;
	if (put_mark(t->pid))
		chosen++;
	return 0;
}

#endif
