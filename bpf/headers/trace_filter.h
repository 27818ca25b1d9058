/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Selects the Pod's processes by container and by command (docs/adr/0010-trace-filters.md). Part of trace.bpf.c, which has
 * cgroup_of and in_pod.
 *
 * sonde_mark  iter/task, Linux 5.12: marks the processes of the command that run already; read, not attached.
 *
 * Input: the constants below, and the map excluded, which user space fills. Output: the map marks. Lost: threads that
 * find no room in marks are counted in marks_lost. Tests: agents/trace, command_test.go and containers_test.go.
 */
#ifndef SONDE_TRACE_FILTER_H
#define SONDE_TRACE_FILTER_H

#define MAP_HASH 1		/* BPF_MAP_TYPE_HASH */
#define MAX_EXCLUDED 1024	/* cgroups; user space excludes more than these by itself */
#define MAX_MARKS 65536		/* threads */
#define MAX_PARTS 32		/* of the command's path */
#define NAME_WORDS 32		/* a name has at most 255 bytes and a zero */
#define MAX_MOUNTS 4		/* on top of each other */
#define PF_IO_WORKER 0x10	/* a thread that the kernel adds to a process for its io_urings, without a fork that is traced */

/* Whether containers are selected: only then excluded is looked up. */
volatile const bool by_container = false;

/* Whether a command is selected: only then tasks are marked, and their marks are looked up. */
volatile const bool by_command = false;

/* Whether a process of the command stays one after any exec. Its children by fork always belong to the command. */
volatile const bool with_children = false;

/*
 * The parts of the command's path, the last one first; for a name, the name alone. They are padded with zeros, to be
 * compared eight bytes at a time.
 */
volatile const __u64 command_parts[MAX_PARTS][NAME_WORDS] = {};
volatile const __u32 command_depth = 0;

/* The whole path; zeros if the command is a name. */
volatile const __u64 command_path[NAME_WORDS] = {};

/* The name, if a thread's name can hold it. */
volatile const __u64 command_comm[2] = {};

/* The kernel's types, as in kernel.h; the suffix avoids conflicts with other headers. */
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

/* Cgroups of containers that are not selected. */
struct {
	__uint(type, MAP_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_EXCLUDED);
	__type(key, __u64);
	__type(value, __u8);
} excluded SEC(".maps");

/*
 * Threads of the command's processes, by their numbers in the first PID namespace. Task storage does not work here: while
 * a task is preempted during its use, the kernel creates none for other tasks on that CPU.
 */
struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, MAX_MARKS);
	__type(key, __u32);
	__type(value, __u32); /* MARK_... */
} marks SEC(".maps");

enum mark {
	MARK_THREAD = 1,
	/* Of a process whose first thread has ended: threads that the kernel adds for its io_urings still belong to the command. */
	MARK_ENDED,
};

/* How many threads sonde_mark has marked. */
__u64 marked = 0;

/* Threads that found no room in marks: their events are missing. */
__u64 marks_lost = 0;

/* What an exec means for the command; the record's ret. */
enum command_change {
	CHANGE_NONE,	/* the process is not recorded */
	CHANGE_STAYS,	/* it was recorded, and still is */
	CHANGE_BEGINS,	/* it was not recorded before */
	CHANGE_ENDS,	/* it is not recorded from now on */
};

/* Keeps the type in BTF. */
const enum command_change *command_change_type __attribute__((unused));

static __always_inline bool is_marked(__u32 tid)
{
	return bpf_map_lookup_elem(&marks, &tid);
}

static __always_inline bool add_mark(__u32 tid, __u32 mark)
{
	if (!bpf_map_update_elem(&marks, &tid, &mark, 0))
		return true;
	__sync_fetch_and_add(&marks_lost, 1);
	return false;
}

static __always_inline void remove_mark(__u32 tid)
{
	bpf_map_delete_elem(&marks, &tid);
}

/* Whether a cgroup is not excluded. */
static __always_inline bool in_container(struct cgroup *g)
{
	__u64 id;

	if (!by_container)
		return true;
	id = g->kn->id;
	return !bpf_map_lookup_elem(&excluded, &id);
}

static __always_inline bool in_command(struct task_struct *t)
{
	return !by_command || is_marked(t->pid) || ((t->flags & PF_IO_WORKER) && is_marked(t->tgid));
}

/* Whether a task within the Pod's cgroup is recorded. */
static __always_inline bool is_wanted(struct task_struct *t, struct cgroup *g)
{
	return in_container(g) && in_command(t);
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

/* Whether a file's path, from the process's root on, is the command's. Its last part is compared first. */
static __always_inline bool is_at_path(struct task_struct *t, struct file___filter *f, __u64 *name)
{
	struct task_struct___filter *task = (void *)t;
	struct fs_struct___filter *fs = BPF_CORE_READ(task, fs);
	struct dentry___filter *top = BPF_CORE_READ(fs, root.dentry), *d = BPF_CORE_READ(f, f_path.dentry);
	struct mount___filter *top_mount = mount_of(BPF_CORE_READ(fs, root.mnt)), *m = mount_of(BPF_CORE_READ(f, f_path.mnt));

	/* One more iteration than there are parts: the last one checks for the root. */
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

/* Whether a task's process is one of the command, by its executable or its name; name is a buffer. */
static __always_inline bool is_command(struct task_struct *t, __u64 *name)
{
	struct mm_struct___filter *mm = (void *)t->mm;
	struct file___filter *exe = BPF_CORE_READ(mm, exe_file);

	if (command_path[0])
		return is_at_path(t, exe, name);
	return has_comm(t) || is_part(BPF_CORE_READ(exe, f_path.dentry), 0, name);
}

/* Whether a program was started by the command's path, which may be that of a link or of a script. */
static __always_inline bool is_started_as(struct linux_binprm *bprm, __u64 *name)
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
 * Updates the mark when a program is started. The thread that starts it may not be the first of its process: then it takes
 * over the first one's number.
 */
static __always_inline enum command_change on_exec(struct task_struct *t, __u32 old_tid, struct linux_binprm *bprm)
{
	__u64 name[NAME_WORDS];
	bool was, is;

	if (!by_command)
		return CHANGE_STAYS;
	was = is_marked(old_tid);
	is = (with_children && was) || is_command(t, name) || is_started_as(bprm, name);
	if (was && old_tid != t->pid)
		remove_mark(old_tid);
	if (is)
		add_mark(t->pid, MARK_THREAD);
	else
		remove_mark(t->pid);
	if (!was)
		return is ? CHANGE_BEGINS : CHANGE_NONE;
	return is ? CHANGE_STAYS : CHANGE_ENDS;
}

/* Marks a new thread or process as its parent is marked. Returns whether it is recorded. */
static __always_inline bool on_fork(struct task_struct *parent, struct task_struct *child)
{
	if (!by_command)
		return true;
	if (!is_marked(parent->pid)) {
		remove_mark(child->pid); /* left by an earlier thread that ended while sonde_mark ran */
		return false;
	}
	add_mark(child->pid, MARK_THREAD);
	return true;
}

/*
 * Removes the mark of a thread that ends; the first thread's stays until the last one ends. The first thread changes its mark
 * before it counts the living, and the last one looks at it after it has ceased to count: one of them removes it.
 */
static __always_inline void unmark(struct task_struct *t)
{
	__u32 tgid = t->tgid, *first;

	if (t->pid != tgid)
		remove_mark(t->pid);
	first = bpf_map_lookup_elem(&marks, &tgid);
	if (!first)
		return;
	if (t->pid == tgid)
		__sync_lock_test_and_set(first, MARK_ENDED); /* a full barrier */
	if (*(volatile __u32 *)first == MARK_ENDED && t->signal->live.counter < 1)
		remove_mark(tgid);
}

/* A thread ends. Returns whether that is recorded. */
static __always_inline bool on_exit(struct task_struct *t, struct cgroup *g)
{
	bool wanted = is_wanted(t, g);

	if (by_command)
		unmark(t);
	return wanted;
}

SEC("iter/task")
int sonde_mark(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	__u64 name[NAME_WORDS];

	/* A task without memory has ended. */
	if (!by_command || !t || !t->mm || !in_pod(cgroup_of(t)) || is_marked(t->pid))
		return 0;
	if (!is_command(t, name) && !(with_children && is_marked(t->real_parent->pid)))
		return 0;
	if (!t->group_leader->mm)
		add_mark(t->tgid, MARK_ENDED);
	if (add_mark(t->pid, MARK_THREAD))
		marked++;
	return 0;
}

#endif
