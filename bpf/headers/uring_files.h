/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Sockets that a process can use without a descriptor of them: it has registered them with an io_uring (IORING_REGISTER_FILES).
 * Each process that has the io_uring can send with them. While a process of the Pod has such an io_uring, only that process has
 * claims: any other one's socket may be registered there, and nothing shows on all kernels which are. Part of packets.bpf.c, for
 * captures that name processes (docs/adr/0021-processes.md).
 *
 * sonde_register  tp_btf/io_uring_register: a process may have registered files. Left out where the kernel has no io_uring.
 * sonde_tasks     iter/task, Linux 5.12: runs once for a scan, before sonde_scan. It also looks for shared tables of files (sockets.h).
 *
 * Input: files that an exec keeps (process_events.h), and that a scan finds (scan.h). Output: the only process with claims, in
 * sole. Lost: an io_uring of another Pod's process; one that a process gets by pidfd_getfd(2) is noticed by the next scan; one that
 * before the capture has lost its last descriptor and works by a thread of the kernel (IORING_SETUP_SQPOLL). Tests:
 * agents/capture/processes.
 */
#ifndef SONDE_URING_FILES_H
#define SONDE_URING_FILES_H

#define URING_NAME 0x6e6972755f6f695bULL	/* "[io_urin", the beginning of "[io_uring]" */
#define URING_NAME_LEN 10
#define REGISTERED_RINGS 16	/* IO_RINGFD_REG_MAX */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct qstr {
	__u32 len;
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file___uring {
	struct path f_path;
	void *private_data;
};

/* Before Linux 6.13. */
struct io_ring_ctx___files {
	unsigned int nr_user_files;
};

struct io_rsrc_data {
	unsigned int nr;
};

struct io_file_table {
	struct io_rsrc_data data;
};

struct io_ring_ctx___table {
	struct io_file_table file_table;
};

struct io_uring_task___registered {
	struct file___uring *registered_rings[1];
};

struct task_struct___uring {
	struct io_uring_task___registered *io_uring;
};

#pragma clang attribute pop

/* Whether a file is an io_uring. Another file of that name at worst takes the claims of its process. */
static __always_inline bool is_uring(struct file___uring *f)
{
	struct dentry *d = BPF_CORE_READ(f, f_path.dentry);
	__u64 name = 0;

	if (BPF_CORE_READ(d, d_name.len) != URING_NAME_LEN)
		return false;
	bpf_probe_read_kernel(&name, sizeof(name), BPF_CORE_READ(d, d_name.name));
	return name == URING_NAME;
}

/* Whether files are registered with an io_uring. */
static __always_inline bool has_files(void *ring)
{
	struct io_ring_ctx___files *old = ring;
	struct io_ring_ctx___table *r = ring;

	if (bpf_core_field_exists(old->nr_user_files))
		return BPF_CORE_READ(old, nr_user_files);
	if (bpf_core_field_exists(r->file_table.data.nr))
		return BPF_CORE_READ(r, file_table.data.nr);
	return true;
}

/* Notes that a process of the Pod has an io_uring with registered files. */
static __always_inline void note_ring(struct process *p)
{
	void_others(p ? (__u32)p->claim : NO_PROCESS);
}

/* Notes that a scan has found an io_uring with registered files at a process. */
static __always_inline void see_ring(struct task_struct___process *t)
{
	struct process *p = process_of(t);

	if (p || !has_ended(t))
		note_ring(p);
}

/* Notes a file of a process in a scan, if it is an io_uring with registered files. */
static __always_inline void see_uring(struct task_struct___process *t, struct file___uring *f)
{
	if (is_uring(f) && is_pods(t) && has_files(BPF_CORE_READ(f, private_data)))
		see_ring(t);
}

/*
 * A process that has once registered files counts until it ends: it can use an io_uring without a descriptor (IORING_SETUP_SQPOLL
 * with its memory, IORING_REGISTER_RING_FDS).
 */
SEC("tp_btf/io_uring_register")
int BPF_PROG(sonde_register, void *ring, unsigned int opcode, unsigned int files, unsigned int buffers, long result)
{
	struct task_struct___process *t = (void *)bpf_get_current_task();
	struct process *p;

	if (!files || !is_pods(t))
		return 0;
	p = process_of(t);
	if (p) {
		p->rings = 1;	/* before sole changes, so that a scan which begins meanwhile finds it */
		note_ring(p);
	} else {
		void_all();
	}
	return 0;
}

/* Notes the io_urings that a thread uses without a descriptor. */
static __always_inline void see_registered(struct task_struct___process *t)
{
	struct io_uring_task___registered *c = 0;
	struct file___uring *f = 0;

	if (!bpf_core_field_exists(((struct task_struct___uring *)t)->io_uring) || !bpf_core_field_exists(c->registered_rings))
		return;
	c = BPF_CORE_READ((struct task_struct___uring *)t, io_uring);
	if (!c || !is_pods(t))
		return;
	for (int i = 0; i < REGISTERED_RINGS; i++) {
		bpf_probe_read_kernel(&f, sizeof(f), (void *)c + bpf_core_field_offset(struct io_uring_task___registered, registered_rings) +
				      i * sizeof(f));
		if (f && has_files(BPF_CORE_READ(f, private_data)))
			see_ring(t);
	}
}

SEC("iter/task")
int sonde_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct process *p;
	__u32 tgid, *slot;

	if (!task)
		return 0;
	tgid = task->tgid;
	slot = bpf_map_lookup_elem(&processes, &tgid);
	p = slot ? record_at(*slot) : 0;
	if (p && p->rings)
		note_ring(p);
	see_registered((void *)task);
	see_table((void *)task);
	return 0;
}

#endif
