/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Operations of io_urings, a part of trace.bpf.c. They are no system calls: a thread submits many by one call, or by none.
 *
 * sonde_uring_submit    tp_btf/io_uring_submit_req, before Linux 6.4 tp_btf/io_uring_submit_sqe: a record for each operation
 *                       that is submitted, with its entry of the ring, its paths and its address.
 * sonde_uring_failed    tp_btf/io_uring_req_failed: the same for an operation with invalid arguments.
 * sonde_uring_end       tp_btf/io_uring_complete, where it has the result as arguments (Linux 6.1, 6.12): a record of the
 *                       result. A result without a request is one of several of an operation, or another ring's message.
 * sonde_uring_end_cqe   tp_btf/io_uring_complete, where it has a pointer to the result (Linux 6.18).
 * sonde_uring_overflow  tp_btf/io_uring_cqe_overflow: a record of a result that the ring had no room for.
 *
 * All need Linux 6.0: before, the tracepoints have other arguments, and kernels trace an overflowing result twice. The loader
 * finds out by BTF. If it attaches none of these programs, sonde_exit counts what is submitted in uring_lost.
 *
 * Input: the constants below and of trace.bpf.c. Output: records in the CPU's ring. Lost: a record that finds no room is
 * counted in its ring, as LOST_URING; an operation without a row in uring_ops in uring_lost. Tests: agents/trace, uring_test.go.
 *
 * The kernel calls these tracepoints in the context of a task only (an interrupt leaves the completion to a task), with
 * preemption disabled: no other program is writing to the CPU's ring.
 */

#define MAX_OPS 128		/* a power of two, larger than the number of any operation */
#define SQE_SIZE 64
#define LOST_URING (LOST_KINDS - 2)

/* The kernel's ABI: include/uapi/linux/io_uring.h. */
#define IORING_SETUP_SQE128 (1U << 10)
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#define IORING_CQE_F_NOTIF (1U << 3)

struct sqe {
	__u8 opcode;
	__u8 flags;
	__u16 ioprio;
	__s32 fd;
	__u64 off;
	__u64 addr;
	__u32 len;
	__u32 op_flags;
	__u64 user_data;
	__u32 buffer;
	__u16 addr_len;
	__u16 spare;
	__u64 rest[2];
};

/* How an operation is recorded. */
enum op_use {
	OP_NONE,
	OP_RECORDED,
	OP_UNKNOWN,	/* counted in uring_lost */
};

/* Where an argument is in the entry. */
enum op_field {
	FIELD_NONE,
	FIELD_OFF,
	FIELD_ADDR,
	FIELD_ADDR_LEN,
};

struct op_row {
	__u8 use;	/* OP_... */
	__u8 first;	/* FIELD_OFF or FIELD_ADDR if that points to a path */
	__u8 second;
	__u8 address;	/* the same for a socket's address */
	__u8 length;	/* FIELD_OFF or FIELD_ADDR_LEN: the address's length */
};

volatile const struct op_row uring_ops[MAX_OPS] = {};

/* Whether results without a request are recorded. */
volatile const bool uring_more = false;

/* Follows the record's head. At a submission the entry follows it. */
struct uring_op {
	__u64 request;	/* the kernel's address, unique while the operation lasts; zero: the result is not an operation's only one */
	__u64 ring;
	__u64 user_data;
	__u32 flags;	/* of a submission: of the request (IOSQE_...). Of a result: IORING_CQE_F_... */
	__u32 known;	/* whether the entry is known */
};

const struct uring_op *uring_op_type __attribute__((unused));
const enum op_use *op_use_type __attribute__((unused));
const enum op_field *op_field_type __attribute__((unused));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct io_uring_task {
	struct task_struct *task;
};

struct io_cqe {
	__u64 user_data;
	__s32 res;
	__u32 flags;
};

struct io_uring_cqe {
	__u64 user_data;
	__s32 res;
	__u32 flags;
};

struct io_ring_ctx {
	unsigned int flags;
	__u32 *sq_array;
	struct io_uring_sqe *sq_sqes;
	unsigned int cached_sq_head;
	unsigned int sq_entries;
};

struct io_kiocb {
	__u8 opcode;
	__u64 flags;
	struct io_cqe cqe;
	struct io_ring_ctx *ctx;
	struct io_uring_task *tctx;
};

/* Before Linux 6.14. */
struct io_kiocb___task {
	struct task_struct *task;
};

#pragma clang attribute pop

_Static_assert(sizeof(struct sqe) == SQE_SIZE, "size of an entry");
_Static_assert(sizeof(struct uring_op) + SQE_SIZE <= MAX_OPERATION && MAX_NUMBERS * 8 <= MAX_OPERATION, "size of a record");

/* The entry that the kernel has taken last from a ring; zero if there is none. */
static __always_inline void *last_entry(struct io_ring_ctx *ring)
{
	__u32 entries = ring->sq_entries, flags = ring->flags, at = (ring->cached_sq_head - 1) & (entries - 1);
	__u64 array = (__u64)ring->sq_array, all = (__u64)ring->sq_sqes;

	if (!(flags & IORING_SETUP_NO_SQARRAY) && bpf_probe_read_kernel(&at, sizeof(at), (void *)(array + at * 4ULL)))
		return 0;
	if (at >= entries)
		return 0;
	return (void *)(all + ((__u64)at << (flags & IORING_SETUP_SQE128 ? 7 : 6)));
}

static __always_inline __u64 field_of(const struct sqe *sqe, __u8 field)
{
	switch (field) {
	case FIELD_OFF: return sqe->off;
	case FIELD_ADDR: return sqe->addr;
	case FIELD_ADDR_LEN: return sqe->addr_len;
	default: return 0;
	}
}

static __always_inline __u32 read_op_address(void *to, const struct sqe *sqe, const volatile struct op_row *row)
{
	__u64 from = field_of(sqe, row->address), n = field_of(sqe, row->length);

	if (n > MAX_ADDRESS)
		n = MAX_ADDRESS;
	if (!from || !n || bpf_probe_read_user(to, n, (void *)from))
		return 0;
	return n;
}

static __always_inline int on_submit(struct io_kiocb *req, const void *entry)
{
	struct task_struct *t = bpf_get_current_task_btf();
	const volatile struct op_row *row;
	struct cgroup *g = cgroup_of(t);
	__u32 opcode, size, length;
	struct uring_op *op;
	struct ring *ring;
	struct record *r;
	struct sqe *sqe;
	__u64 head;

	if (!in_pod(g) || !is_wanted(t, g))
		return 0;
	opcode = req->opcode;
	row = &uring_ops[opcode & (MAX_OPS - 1)];
	if (row->use == OP_UNKNOWN || opcode >= MAX_OPS) {
		__sync_fetch_and_add(&uring_lost, 1);
		return 0;
	}
	if (row->use != OP_RECORDED)
		return 0;
	r = next_record(&ring, &head, LOST_URING);
	if (!r)
		return 0;
	init_record(r, t, g, KIND_URING_SUBMIT);
	r->call = opcode;
	op = (void *)(r + 1);
	sqe = (void *)(op + 1);
	op->request = (__u64)req;
	op->ring = (__u64)req->ctx;
	op->user_data = req->cqe.user_data;
	op->flags = 0;
	bpf_core_read(&op->flags, sizeof(op->flags), &req->flags); /* the low half, if there is a high one */
	if (!entry)
		entry = last_entry(req->ctx);
	op->known = entry && !bpf_probe_read_kernel(sqe, SQE_SIZE, entry) && sqe->opcode == opcode && sqe->user_data == op->user_data;
	size = sizeof(*r) + sizeof(*op) + SQE_SIZE;
	if (op->known && row->address) {
		length = read_op_address((void *)r + size, sqe, row);
		r->address = length;
		size += (length + 7) & 0xf8;
	}
	if (op->known && row->first) {
		r->first = read_path((void *)r + size, field_of(sqe, row->first));
		size += (r->first + 7) & 0x1ff8;
	}
	if (op->known && row->second) {
		r->second = read_path((void *)r + size, field_of(sqe, row->second));
		size += (r->second + 7) & 0x1ff8;
	}
	r->size = size;
	publish(ring, head, next_head(head, size));
	return 0;
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(sonde_uring_submit, struct io_kiocb *req)
{
	return on_submit(req, 0);
}

SEC("tp_btf/io_uring_req_failed")
int BPF_PROG(sonde_uring_failed, const void *sqe, struct io_kiocb *req)
{
	return on_submit(req, sqe);
}

/* The task that has submitted a request. */
static __always_inline struct task_struct *submitter(struct io_kiocb *req)
{
	struct io_kiocb___task *old = (void *)req;

	if (bpf_core_field_exists(old->task))
		return BPF_CORE_READ(old, task);
	return BPF_CORE_READ(req, tctx, task);
}

/* The number of a task's cgroup if its operations are recorded, zero otherwise; reads a task that is not the current one. */
static __always_inline __u64 wanted_cgroup(struct task_struct *t)
{
	struct css_set *set = BPF_CORE_READ(t, cgroups);
	struct cgroup_subsys_state *pids = 0;
	struct cgroup *g;
	__u64 id;

	if (cgroup_v1) {
		bpf_probe_read_kernel(&pids, sizeof(pids), (void *)set + bpf_core_field_offset(struct css_set, subsys) +
				      bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id) * 8);
		g = BPF_CORE_READ(pids, cgroup);
	} else {
		g = BPF_CORE_READ(set, dfl_cgrp);
	}
	if (!cgroup_id || BPF_CORE_READ(g, level) < (int)cgroup_level || ancestor(g, cgroup_level) != cgroup_id)
		return 0;
	id = BPF_CORE_READ(g, kn, id);
	if (by_container && bpf_map_lookup_elem(&excluded, &id))
		return 0;
	if (by_command && !is_marked(BPF_CORE_READ(t, pid)) && !(BPF_CORE_READ(t, flags) & PF_IO_WORKER && is_marked(BPF_CORE_READ(t, tgid))))
		return 0;
	return id;
}

static __always_inline bool is_submitter(struct task_struct *t, struct io_kiocb *req)
{
	struct io_kiocb___task *old = (void *)req;

	if (bpf_core_field_exists(old->task))
		return BPF_CORE_READ(old, task) == t;
	return BPF_CORE_READ(req, tctx) == t->io_uring;
}

/*
 * The number of the cgroup of a result's operation if it is recorded, zero otherwise. The thread that completes an operation may
 * be another one than its submitter, such as a worker of the kernel. For the node's other processes this is all that is done,
 * with one helper.
 */
static __always_inline __u64 result_cgroup(struct io_kiocb *req)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct cgroup *g;

	if (req && !is_submitter(t, req))
		return wanted_cgroup(submitter(req));
	g = cgroup_of(t);
	return in_pod(g) && is_wanted(t, g) ? g->kn->id : 0;
}

static __always_inline int on_end(__u64 cgroup, struct io_kiocb *req, __u64 ring_address, __u64 user_data, __s32 res, __u32 flags)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct uring_op *op;
	struct ring *ring;
	struct record *r;
	__u32 opcode = 0;
	__u64 head;

	if (flags & IORING_CQE_F_NOTIF) /* says that a buffer is free again */
		return 0;
	if (req) {
		opcode = BPF_CORE_READ(req, opcode);
		if (opcode >= MAX_OPS || uring_ops[opcode & (MAX_OPS - 1)].use != OP_RECORDED)
			return 0;
	}
	r = next_record(&ring, &head, LOST_URING);
	if (!r)
		return 0;
	init_record(r, t, cgroup_of(t), KIND_URING_END);
	r->cgroup = cgroup;
	if (req && !is_submitter(t, req) && BPF_CORE_READ(submitter(req), tgid) != t->tgid)
		r->pid = r->tid = r->inner_pid = r->inner_tid = 0; /* the reader knows the submitter from the submission */
	r->call = opcode;
	r->ret = res;
	op = (void *)(r + 1);
	op->request = (__u64)req;
	op->ring = ring_address;
	op->user_data = user_data;
	op->flags = flags;
	op->known = 0;
	r->size = sizeof(*r) + sizeof(*op);
	publish(ring, head, next_head(head, sizeof(*r) + sizeof(*op)));
	return 0;
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(sonde_uring_end, void *ring, void *req, __u64 user_data, int res, unsigned int flags)
{
	__u64 cgroup = req || uring_more ? result_cgroup(req) : 0;

	return cgroup ? on_end(cgroup, req, (__u64)ring, user_data, res, flags) : 0;
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(sonde_uring_end_cqe, struct io_ring_ctx *ring, void *request, struct io_uring_cqe *cqe)
{
	struct io_kiocb *req = request;
	__u64 cgroup = req || uring_more ? result_cgroup(req) : 0;

	if (!cgroup)
		return 0;
	if (!req)
		return on_end(cgroup, 0, (__u64)ring, cqe->user_data, cqe->res, cqe->flags);
	/* Processes can write to cqe. */
	return on_end(cgroup, req, (__u64)ring, BPF_CORE_READ(req, cqe.user_data), BPF_CORE_READ(req, cqe.res), BPF_CORE_READ(req, cqe.flags));
}

SEC("tp_btf/io_uring_cqe_overflow")
int BPF_PROG(sonde_uring_overflow, void *ring, __u64 user_data, __s32 res, __u32 flags)
{
	__u64 cgroup = result_cgroup(0);

	return cgroup ? on_end(cgroup, 0, (__u64)ring, user_data, res, flags) : 0;
}
