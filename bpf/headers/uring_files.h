/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Sockets that a process can use without a descriptor of them: it has registered them with an io_uring (IORING_REGISTER_FILES).
 * Each process that has a descriptor of the io_uring can send with them. Part of packets.bpf.c, for captures that name processes
 * (docs/adr/0021-processes.md).
 *
 * Input: files that an exec keeps (process_events.h), and that a scan finds (scan.h). Output: processes that share such an
 * io_uring, which have no claims. Lost: an io_uring without room in the map counts as shared; one that gets its files after a scan
 * is noticed by the next. Tests: agents/capture, process_test.go.
 */
#ifndef SONDE_URING_FILES_H
#define SONDE_URING_FILES_H

#define URING_NAME 0x6e6972755f6f695bULL	/* "[io_urin", the beginning of "[io_uring]" */
#define URING_NAME_LEN 10

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

#pragma clang attribute pop

/* The process that a scan has found to have an io_uring. */
struct uring {
	__u32 scan;
	__u32 claim;
};

/* io_urings with registered files, by the address of their struct file. User space empties it before each scan. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct uring);
} urings SEC(".maps");

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

/* Voids the claims of a process, and those that it would make, until a scan finds that it shares no io_uring. It counts as a fork. */
static __always_inline void note_sharing(struct process *p)
{
	if (!p)
		return;
	if (!p->shares) {
		__sync_fetch_and_add(&p->children, 1);
		__sync_fetch_and_add(&p->claim, 1ULL << 32);
	}
	p->shares = scan;
}

/* When a scan has looked at all files, a process that it has not found to share an io_uring can have claims again. */
static __always_inline void end_sharing(struct task_struct___process *t)
{
	__u32 tgid = BPF_CORE_READ(t, tgid), *slot = bpf_map_lookup_elem(&processes, &tgid);
	struct process *p = slot ? record_at(*slot) : 0;

	if (!p || !p->shares || p->shares == scan)
		return;
	p->shares = 0;
	__sync_fetch_and_add(&p->children, -1);
}

/* Notes in a scan that a process of the Pod has an io_uring. */
static __always_inline void see_uring(struct task_struct___process *t, struct file___uring *f)
{
	__u64 address = (__u64)f;
	struct uring now = { .scan = scan }, *known;
	struct process *p;

	if (!is_uring(f) || !is_pods(t) || !has_files(BPF_CORE_READ(f, private_data)))
		return;
	p = process_of(t);
	now.claim = p ? (__u32)p->claim : 0;
	known = bpf_map_lookup_elem(&urings, &address);
	if (!known || known->scan != scan) {
		if (bpf_map_update_elem(&urings, &address, &now, 0))
			note_sharing(p);
		return;
	}
	if (known->claim == now.claim)
		return;
	note_sharing(p);
	if (known->claim)
		note_sharing(record_at(slot_of(known->claim)));
}

#endif
