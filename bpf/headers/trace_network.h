/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * The TCP connections of one Pod: the programs of the group network, a part of trace.bpf.c. They are loaded and attached
 * only for that group.
 *
 * sonde_state           tp_btf/inet_sock_set_state: the start of a connection and its owner; a record of its end.
 * sonde_retransmit      tp_btf/tcp_retransmit_skb: a record of a segment that was sent again.
 * sonde_reset_sent      tp_btf/tcp_send_reset: a record. Later kernels append arguments, and may pass no socket.
 * sonde_reset_received  tp_btf/tcp_receive_reset: a record.
 * sonde_sockets         iter/task_file: the open sockets of the Pod's processes, which own them from then on; read, not
 *                       attached.
 *
 * All need Linux 5.12; socket storage and bpf_sock_from_file for tracing programs came with 5.11. All but the last run for
 * each socket of the node, many in softirqs: few loads must be enough to skip other Pods' sockets.
 *
 * Input: the constants below and the Pod's cgroup. Output: records in rare. Tests: agents/trace, network_test.go.
 * Lost: rare_lost counts records that find no room, and connections that need an owner and whose socket has no room for it.
 * The kernel counts events in softirqs that interrupt the same program (recursion_misses), for any Pod's socket.
 *
 * A process with MPTCP, as Go's servers have it by default, has a socket above the TCP sockets of its connections, which are the
 * kernel's. Where the one above is older than the trace, they find their owner by it (mptcp_owners).
 */
#ifndef SONDE_TRACE_NETWORK_H
#define SONDE_TRACE_NETWORK_H

#include <bpf/bpf_endian.h>

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_MPTCP 262
#define MAX_MPTCP 16384	/* sockets of MPTCP that are older than the trace */
#define SOCK_DONE 1	/* bit of skc_flags: the other side has closed its stream. BTF does not have this enum */
#define MAX_UNIX 112	/* a multiple of 8 with room for struct sockaddr_un */

/* include/net/tcp_states.h, a part of the kernel's ABI. */
enum {
	TCP_SYN_SENT = 2,
	TCP_SYN_RECV = 3,
	TCP_FIN_WAIT1 = 4,
	TCP_TIME_WAIT = 6,
	TCP_CLOSE = 7,
	TCP_LAST_ACK = 9,
	TCP_LISTEN = 10,
	TCP_NEW_SYN_RECV = 12,
};

/* The number of the Pod's network namespace; zero means none. */
volatile const __u32 netns = 0;

/* The Pod is on the node's network: its sockets are those that its processes connect or listen with. */
volatile const bool owned_only = false;

enum role {
	ROLE_CLIENT = 1,
	ROLE_SERVER,
};

enum side {
	SIDE_LOCAL = 1,
	SIDE_REMOTE,
};

/* The state of a connection, which follows the record's head. */
struct tcp {
	__u64 start;		/* nanoseconds since boot; zero where it was not observed */
	__u64 sent;		/* bytes of the stream, without retransmits */
	__u64 received;
	__u32 retransmits;	/* segments */
	__u32 rtt;		/* smoothed, in eighths of a microsecond */
	__u32 bytes;		/* of a retransmitted segment */
	__s32 error;		/* of the socket */
	__u8 local[16];		/* IPv4: the first four bytes */
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
	__u16 family;
	__u16 protocol;
	__u8 state;		/* TCP's; at the end of a connection the one before CLOSE */
	__u8 role;
	__u8 by;		/* of a reset: the side that sent it */
	__u8 spare[5];
};

/* The output of sonde_sockets for each socket. */
struct open_socket {
	struct record r;
	struct tcp t;
	__u64 inode;
	__u16 type;
	__u16 length;		/* of a Unix socket's address, or its peer's */
	__u32 unowned;		/* the end of its connection will not be recorded: it has no room for its owner */
	__u8 name[MAX_UNIX];
};

const struct tcp *tcp_type __attribute__((unused));
const struct open_socket *open_socket_type __attribute__((unused));
const enum role *role_type __attribute__((unused));
const enum side *side_type __attribute__((unused));

struct rare_tcp {
	struct record r;
	struct tcp t;
};

/*
 * The process that owns a socket, and when its connection began. An accepted socket has its listener's process until a
 * process closes it. Zeros: the socket is in the Pod's namespace, but no process of the Pod made it.
 */
struct owner {
	struct record r;
	__u64 start;
	__u32 role;
	__u32 spare;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct owner);
} owners SEC(".maps");

/* Owners of the sockets of MPTCP that sonde_sockets has found, by cookie. */
struct {
	__uint(type, MAP_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_MPTCP);
	__type(key, __u64);
	__type(value, struct owner);
} mptcp_owners SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock___mptcp {
	struct sock_common___mptcp {
		struct {
			__s64 counter;
		} skc_cookie;
	} __sk_common;
};

struct tcp_sock___mptcp {
	bool is_mptcp;
};

struct inet_connection_sock {
	void *icsk_ulp_data;
};

struct mptcp_subflow_context {
	struct sock___mptcp *conn;
};

struct mptcp_sock {
	struct sock *first;
};

#pragma clang attribute pop

/*
 * The owner of the socket of MPTCP above a TCP socket; zero if there is none, or it is not known. A connection that has just come
 * in has its listener's link to the socket above. The helper bpf_skc_to_mptcp_sock is no choice (attribution.h).
 */
static __always_inline struct owner *owner_above(const struct sock *sk)
{
	struct mptcp_subflow_context *subflow = 0;
	__u8 state = sk->__sk_common.skc_state;
	struct sock___mptcp *above;
	__u64 cookie;

	if (state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV) /* these are not full sockets */
		return 0;
	if (!bpf_core_field_exists(subflow->conn) || !BPF_CORE_READ((struct tcp_sock___mptcp *)sk, is_mptcp))
		return 0;
	subflow = BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_ulp_data);
	above = subflow ? BPF_CORE_READ(subflow, conn) : 0;
	cookie = above ? BPF_CORE_READ(above, __sk_common.skc_cookie.counter) : 0;
	return cookie ? bpf_map_lookup_elem(&mptcp_owners, &cookie) : 0;
}

/* Whether a socket may be the Pod's: a cheap check. */
static __always_inline bool may_be_ours(const struct sock *sk)
{
	return owned_only || (netns && sk->__sk_common.skc_net.net->ns.inum == netns);
}

/*
 * Whether a socket of the Pod is recorded only with its owner. A process can fill the memory that the kernel allows for a socket's
 * options (SO_ATTACH_FILTER): then the socket has no room for an owner, and its connection is counted instead.
 */
static __always_inline bool needs_owner(void)
{
	return owned_only || by_command;
}

/* The owner of a socket, if it has one; *ours says whether the socket is the Pod's. */
static __always_inline struct owner *owner_of(const struct sock *sk, bool *ours)
{
	struct owner *m = bpf_sk_storage_get(&owners, (void *)sk, 0, 0), *above;

	if (!m || !m->r.cgroup) {
		above = owner_above(sk);
		if (above)
			m = above;
	}
	*ours = !needs_owner() || (m && m->r.cgroup);
	return m;
}

static __always_inline void read_endpoints(struct tcp *to, const struct sock *sk)
{
	__u8 state = sk->__sk_common.skc_state;

	to->family = sk->__sk_common.skc_family;
	to->state = state;
	to->local_port = sk->__sk_common.skc_num;
	to->remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	if (to->family == AF_INET) {
		*(__u32 *)to->local = sk->__sk_common.skc_rcv_saddr;
		*(__u32 *)to->remote = sk->__sk_common.skc_daddr;
	} else if (to->family == AF_INET6 && bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
		bpf_probe_read_kernel(to->local, sizeof(to->local), &sk->__sk_common.skc_v6_rcv_saddr);
		bpf_probe_read_kernel(to->remote, sizeof(to->remote), &sk->__sk_common.skc_v6_daddr);
	}
	if (state == TCP_TIME_WAIT || state == TCP_NEW_SYN_RECV)
		return; /* these are not full sockets */
	if (!to->local_port) /* a closing socket has released its port */
		to->local_port = bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
	to->protocol = sk->sk_protocol;
	to->error = sk->sk_err;
}

/* Reads the counts of a TCP socket. The kernel counts the other side's FIN as a received byte. */
static __always_inline void read_counts(struct tcp *to, const struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u64 end = (BPF_CORE_READ(sk, __sk_common.skc_flags) >> SOCK_DONE) & 1;

	to->sent = BPF_CORE_READ(tp, bytes_sent) - BPF_CORE_READ(tp, bytes_retrans);
	to->received = BPF_CORE_READ(tp, bytes_received);
	if (to->received)
		to->received -= end;
	to->retransmits = BPF_CORE_READ(tp, total_retrans);
	to->rtt = BPF_CORE_READ(tp, srtt_us);
}

/* Makes a record of a socket, which the caller submits; zero if there is no room. */
static __always_inline struct rare_tcp *new_event(const struct sock *sk, struct owner *m, enum kind kind)
{
	struct rare_tcp *e = reserve_rare(sizeof(*e), kind);

	if (!e)
		return 0;
	__builtin_memset(e, 0, sizeof(*e));
	if (m) {
		e->r = m->r;
		e->t.start = m->start;
		e->t.role = m->role;
	}
	e->r.time = bpf_ktime_get_boot_ns();
	e->r.kind = kind;
	e->r.size = sizeof(*e);
	read_endpoints(&e->t, sk);
	return e;
}

/* A process connects or listens. */
static __always_inline void on_open(const struct sock *sk, enum role role)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct cgroup *g = cgroup_of(t);
	bool by_pod = in_pod(g) && in_command(t);
	struct owner *m;

	if (owned_only && !by_pod)
		return;
	m = bpf_sk_storage_get(&owners, (void *)sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!m) {
		if (needs_owner() && by_pod && in_container(g))
			__sync_fetch_and_add(&rare_lost[KIND_CONNECTION], 1);
		return;
	}
	m->start = bpf_ktime_get_boot_ns();
	m->role = role;
	if (by_pod)
		init_record(&m->r, t, g, KIND_CONNECTION);
}

/* A connection comes in, in any process's context. The kernel has cloned its listener's storage. */
static __always_inline void on_incoming(const struct sock *sk)
{
	struct owner *m = bpf_sk_storage_get(&owners, (void *)sk, 0, owned_only ? 0 : BPF_LOCAL_STORAGE_GET_F_CREATE), *above;

	if (!m || !m->r.cgroup) {
		above = owner_above(sk);
		if (above && !m)
			m = bpf_sk_storage_get(&owners, (void *)sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (above && m)
			m->r = above->r;
	}
	if (!m)
		return;
	m->start = bpf_ktime_get_boot_ns();
	m->role = ROLE_SERVER;
}

/*
 * A process closes its side: that is the owner of an accepted connection. One that came in before sonde_sockets has found its listener,
 * and was accepted afterwards, had none.
 */
static __always_inline void on_close(const struct sock *sk)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct cgroup *g = cgroup_of(t);
	struct owner *m;

	if (!in_pod(g) || !in_command(t))
		return;
	m = bpf_sk_storage_get(&owners, (void *)sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (m)
		init_record(&m->r, t, g, KIND_CONNECTION);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(sonde_state, const struct sock *sk, int before, int after)
{
	struct rare_tcp *e;
	struct owner *m;
	bool ours;

	if (!may_be_ours(sk) || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (after == TCP_SYN_SENT)
		on_open(sk, ROLE_CLIENT);
	else if (after == TCP_LISTEN)
		on_open(sk, 0);
	else if (after == TCP_SYN_RECV)
		on_incoming(sk);
	else if (after == TCP_FIN_WAIT1 || after == TCP_LAST_ACK)
		on_close(sk);
	if (after != TCP_CLOSE || before == TCP_CLOSE || before == TCP_LISTEN)
		return 0;
	m = owner_of(sk, &ours);
	if (!ours)
		return 0;
	e = new_event(sk, m, KIND_CONNECTION);
	if (!e)
		return 0;
	e->t.state = before;
	read_counts(&e->t, sk);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Makes a record of a socket if it is the Pod's; zero otherwise. */
static __always_inline struct rare_tcp *socket_event(const struct sock *sk, enum kind kind)
{
	struct owner *m;
	bool ours;

	if (!sk || !may_be_ours(sk))
		return 0;
	m = owner_of(sk, &ours);
	return ours ? new_event(sk, m, kind) : 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(sonde_retransmit, const struct sock *sk, const struct sk_buff *skb)
{
	struct rare_tcp *e = socket_event(sk, KIND_RETRANSMIT);

	if (!e)
		return 0;
	read_counts(&e->t, sk);
	if (skb)
		e->t.bytes = skb->len;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int submit_reset(const struct sock *sk, enum side by)
{
	struct rare_tcp *e = socket_event(sk, KIND_RESET);

	if (!e)
		return 0;
	e->t.by = by;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/tcp_send_reset")
int BPF_PROG(sonde_reset_sent, const struct sock *sk)
{
	return submit_reset(sk, SIDE_LOCAL);
}

SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(sonde_reset_received, const struct sock *sk)
{
	return submit_reset(sk, SIDE_REMOTE);
}

/* Reads the address of a Unix socket, or else its peer's. */
static __always_inline void read_unix_name(struct open_socket *s, struct sock *sk)
{
	struct unix_sock *u = (struct unix_sock *)sk, *peer;
	struct unix_address *a;
	__u32 n;

	if (!bpf_core_field_exists(u->addr)) /* Unix sockets are a module */
		return;
	a = BPF_CORE_READ(u, addr);
	if (!a) {
		peer = (struct unix_sock *)BPF_CORE_READ(u, peer);
		if (peer)
			a = BPF_CORE_READ(peer, addr);
	}
	if (!a)
		return;
	n = BPF_CORE_READ(a, len);
	if (n > MAX_UNIX)
		return;
	if (!bpf_probe_read_kernel(s->name, n, (void *)a + bpf_core_field_offset(struct unix_address, name)))
		s->length = n;
}

/*
 * Notes the owner of a socket of MPTCP. The kernel makes the TCP sockets below it, and this iterator finds none of them. So the event
 * of an open connection has the counts of the first one.
 */
static __always_inline void see_mptcp(struct open_socket *s, struct sock *sk)
{
	struct owner new = {}, *m;
	struct sock *first = 0;
	__u64 cookie;

	if (bpf_core_field_exists(((struct mptcp_sock *)0)->first))
		first = BPF_CORE_READ((struct mptcp_sock *)sk, first);
	if (first)
		read_counts(&s->t, first);
	cookie = bpf_get_socket_cookie(sk);
	m = bpf_map_lookup_elem(&mptcp_owners, &cookie);
	if (m) {
		s->r = m->r;
		return;
	}
	new.r = s->r;
	s->unowned = bpf_map_update_elem(&mptcp_owners, &cookie, &new, 0) && needs_owner() && s->t.state != TCP_CLOSE;
}

SEC("iter/task_file")
int sonde_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *t = ctx->task;
	struct file *file = ctx->file;
	struct open_socket s = {};
	struct socket *socket;
	struct cgroup *g;
	struct owner *m;
	struct sock *sk;

	if (!t || !file)
		return 0;
	g = cgroup_of(t);
	if (!in_pod(g) || !in_command(t))
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk)
		return 0;
	init_record(&s.r, t, g, KIND_CONNECTION);
	s.inode = file->f_inode->i_ino;
	s.type = socket->type;
	s.t.family = sk->__sk_common.skc_family;
	s.t.protocol = sk->sk_protocol;
	if (s.t.family == AF_UNIX)
		read_unix_name(&s, sk);
	if (s.t.family == AF_INET || s.t.family == AF_INET6)
		read_endpoints(&s.t, sk);
	if (s.t.protocol == IPPROTO_TCP && s.t.family != AF_UNIX) {
		read_counts(&s.t, sk);
		m = bpf_sk_storage_get(&owners, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (m) {
			if (!m->r.cgroup)
				m->r = s.r;
			s.r = m->r;
			s.t.start = m->start;
			s.t.role = m->role;
		} else {
			s.unowned = needs_owner() && s.t.state != TCP_CLOSE;
		}
	}
	if (s.t.protocol == IPPROTO_MPTCP && s.t.family != AF_UNIX)
		see_mptcp(&s, sk);
	bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
	return 0;
}

#endif
