/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Reads who has which socket, and makes that the sockets' claims (docs/adr/0021-processes.md). Part of packets.bpf.c; loaded only
 * if packets name processes.
 *
 * sonde_scan  iter/task_file, Linux 5.12: runs twice for a scan, the second time with commit; read, not attached.
 *
 * Input: scan, commit, scan_passes and the map groups. Output: a struct holding for each descriptor of a socket, claims in owners,
 * and processes that have an io_uring with files (uring_files.h). Lost: a socket without room for an owner stays unknown. Tests:
 * agents/capture/processes.
 */
#ifndef SONDE_SCAN_H
#define SONDE_SCAN_H

/* Notes that a process has a socket. */
static __always_inline void see(struct owner *o, __u64 address, __u64 claim)
{
	if (o->scan != scan || o->address != address) {
		if (o->address != address && listener_pass > o->passes)	/* its listener's claim stays in doubt until the commit */
			*(volatile __u64 *)&o->claim = REASON_PASSED;
		*(volatile __u64 *)&o->address = address;
		o->seen = claim;
		o->several = 0;
		o->scan = scan;
	} else if ((__u32)o->seen != (__u32)claim) {
		o->several = 1;
	}
}

/*
 * Makes what the scan has found the socket's claim. Several processes without a group have not shared the socket for long: the
 * claim stays in doubt, and is valid again if they were children that have started another program.
 */
static __always_inline void settle(struct owner *o, __u64 address)
{
	__u64 *group;

	if (o->scan != scan || o->address != address)
		return;
	group = o->several ? bpf_map_lookup_elem(&groups, &address) : &o->seen;
	if (!group)
		return;
	*(volatile __u64 *)&o->claim = *group;
	o->passes = scan_passes;
}

SEC("iter/task_file")
int sonde_scan(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_struct___process *t = (void *)task;
	struct file *file = ctx->file;
	struct file___uring *f = (void *)file;
	struct holding h = {};
	struct socket *socket;
	struct process *p;
	struct owner *o;
	struct sock *sk;
	__u64 cookie;

	if (!task || !file)
		return 0;
	note_net(t);
	socket = bpf_sock_from_file(file);
	if (!socket) {
		if (!commit && f->f_path.dentry->d_name.len == URING_NAME_LEN) /* the cheapest check, for each file of the node */
			see_uring(t, f);
		return 0;
	}
	sk = socket->sk;
	if (!sk || !is_inet(sk))
		return 0;
	o = bpf_sk_storage_get(&owners, sk, 0, commit ? 0 : BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!o)
		return 0;
	h.socket = (__u64)sk;
	cookie = bpf_get_socket_cookie(sk); /* as in sonde_create */
	if (commit) {
		settle(o, h.socket);
		if (sk->sk_protocol == IPPROTO_MPTCP)
			note_mptcp(o, cookie);
		return 0;
	}
	if (!o->claim)
		o->claim = REASON_UNSEEN;
	h.claim = claim_of(t);
	if (h.claim == REASON_ENDED) /* it closes the socket, and uses it no more */
		return 0;
	see(o, h.socket, h.claim);
	p = record_at(slot_of(h.claim));
	if (p && h.claim >= FIRST_PROCESS && p->scan != scan) {
		refresh(p, t);
		p->scan = scan;
		h.container = p->container;
	}
	h.pid = pid_at(BPF_CORE_READ(t, group_leader, thread_pid), node_level);
	h.tgid = task->tgid;
	bpf_seq_write(ctx->meta->seq, &h, sizeof(h));
	return 0;
}

#endif
