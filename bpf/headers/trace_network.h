/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * The TCP connections of one Pod: the part of trace.bpf.c that the group network has of its own. Loaded and attached only
 * where that is asked for.
 *
 * sonde_state           tp_btf/inet_sock_set_state: a connection begins, whose it is, and its end.
 * sonde_retransmit      tp_btf/tcp_retransmit_skb: a segment was sent again.
 * sonde_reset_sent      tp_btf/tcp_send_reset; later kernels give it more arguments behind these, and no socket at times.
 * sonde_reset_received  tp_btf/tcp_receive_reset.
 * sonde_sockets         iter/task_file: the open sockets of the Pod's processes, whom they belong to from then on.
 *
 * They need what Linux 5.11 brought, the storage of sockets and sockets of files for tracing programs. All but the last
 * run for each socket of the node, and many in softirqs: what is not the Pod's must be told by few loads.
 *
 * Input: the constants below and the Pod's cgroup. Output: records in rare; what finds no room is counted in rare_lost.
 * What a softirq brings while the same program runs on its CPU is counted by the kernel, as a recursion, whoever's socket
 * it was. Tests: agents/trace, network_test.go.
 */
#ifndef SONDE_TRACE_NETWORK_H
#define SONDE_TRACE_NETWORK_H

#include <bpf/bpf_endian.h>

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define SOCK_DONE 1	/* bit of skc_flags: the other side has ended its stream. The enumeration is not in BTF */
#define MAX_UNIX 112	/* a multiple of 8 with room for struct sockaddr_un */

/* include/net/tcp_states.h; they are in what user space is told, and do not change. */
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

/* The number of the Pod's network namespace; zero is none. */
volatile const __u32 netns = 0;

/* The Pod has no namespace of its own: its sockets are those that one of its processes made, or accepts by. */
volatile const bool owned_only = false;

enum role {
	ROLE_CLIENT = 1,
	ROLE_SERVER,
};

enum side {
	SIDE_LOCAL = 1,
	SIDE_REMOTE,
};

/* What is told of a connection, behind the record's head. */
struct tcp {
	__u64 begun;		/* as the record's time; zero where it was not seen */
	__u64 sent;		/* bytes of the stream, without those that were sent again */
	__u64 received;
	__u32 retransmits;	/* segments */
	__u32 rtt;		/* smoothed, in eighths of a microsecond */
	__u32 bytes;		/* of a segment that was sent again */
	__s32 error;		/* of the socket */
	__u8 local[16];		/* of IPv4 the first four */
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
	__u16 family;
	__u16 protocol;
	__u8 state;		/* TCP's; of one that has ended the last before */
	__u8 role;
	__u8 by;		/* of a reset: which side it comes from */
	__u8 spare[5];
};

/* What sonde_sockets writes of each. */
struct open_socket {
	struct record r;
	struct tcp t;
	__u64 inode;
	__u16 type;
	__u16 length;		/* of the address of a Unix socket, or of its peer's */
	__u32 spare;
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
 * Who made a socket, and when its connection began. One that is accepted has its listener's until who closes it is
 * known. Zeros are of sockets that no process of the Pod made, but are in its namespace.
 */
struct maker {
	struct record r;
	__u64 begun;
	__u32 role;
	__u32 spare;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct maker);
} makers SEC(".maps");

/* Whether a socket may be the Pod's. */
static __always_inline bool nearby(const struct sock *sk)
{
	return owned_only || (netns && sk->__sk_common.skc_net.net->ns.inum == netns);
}

/* The maker of a socket that is the Pod's; with *ours false it is not. */
static __always_inline struct maker *maker_of(const struct sock *sk, bool *ours)
{
	struct maker *m = bpf_sk_storage_get(&makers, (void *)sk, 0, 0);

	*ours = !(owned_only || by_command) || (m && m->r.cgroup);
	return m;
}

static __always_inline void endpoints(struct tcp *to, const struct sock *sk)
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
		return; /* these are smaller than a socket */
	if (!to->local_port) /* one that is closing has given its port back */
		to->local_port = bpf_ntohs(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
	to->protocol = sk->sk_protocol;
	to->error = sk->sk_err;
}

/* The counts of a TCP socket. The other side's end of the stream is counted as a byte by the kernel. */
static __always_inline void counts(struct tcp *to, const struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u64 end = (sk->__sk_common.skc_flags >> SOCK_DONE) & 1;

	to->sent = BPF_CORE_READ(tp, bytes_sent) - BPF_CORE_READ(tp, bytes_retrans);
	to->received = BPF_CORE_READ(tp, bytes_received);
	if (to->received)
		to->received -= end;
	to->retransmits = BPF_CORE_READ(tp, total_retrans);
	to->rtt = BPF_CORE_READ(tp, srtt_us);
}

/* Makes the record of an event of a socket, which is to be submitted; zero where there is no room. */
static __always_inline struct rare_tcp *event_of(const struct sock *sk, struct maker *m, enum kind kind)
{
	struct rare_tcp *e = reserve(sizeof(*e), kind);

	if (!e)
		return 0;
	__builtin_memset(e, 0, sizeof(*e));
	if (m) {
		e->r = m->r;
		e->t.begun = m->begun;
		e->t.role = m->role;
	}
	e->r.time = bpf_ktime_get_boot_ns();
	e->r.kind = kind;
	e->r.size = sizeof(*e);
	endpoints(&e->t, sk);
	return e;
}

/* A process makes a connection, or begins to listen. */
static __always_inline void made(const struct sock *sk, enum role role)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct cgroup *g = cgroup_of(t);
	bool by_pod = within(g) && of_command(t);
	struct maker *m;

	if (owned_only && !by_pod)
		return;
	m = bpf_sk_storage_get(&makers, (void *)sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!m)
		return;
	m->begun = bpf_ktime_get_boot_ns();
	m->role = role;
	if (by_pod)
		begin(&m->r, t, g, KIND_CONNECTION);
}

/* A connection comes in, in whatever process's time. What its listener had has been copied for it. */
static __always_inline void came(const struct sock *sk)
{
	struct maker *m = bpf_sk_storage_get(&makers, (void *)sk, 0, owned_only ? 0 : BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!m)
		return;
	m->begun = bpf_ktime_get_boot_ns();
	m->role = ROLE_SERVER;
}

/* A process ends its side, which only the process does: of one that was accepted it is the one that had it. */
static __always_inline void ended(const struct sock *sk)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct maker *m = bpf_sk_storage_get(&makers, (void *)sk, 0, 0);
	struct cgroup *g = cgroup_of(t);

	if (m && within(g) && of_command(t))
		begin(&m->r, t, g, KIND_CONNECTION);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(sonde_state, const struct sock *sk, int before, int after)
{
	struct rare_tcp *e;
	struct maker *m;
	bool ours;

	if (!nearby(sk) || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (after == TCP_SYN_SENT)
		made(sk, ROLE_CLIENT);
	else if (after == TCP_LISTEN)
		made(sk, 0);
	else if (after == TCP_SYN_RECV)
		came(sk);
	else if (after == TCP_FIN_WAIT1 || after == TCP_LAST_ACK)
		ended(sk);
	if (after != TCP_CLOSE || before == TCP_CLOSE || before == TCP_LISTEN)
		return 0;
	m = maker_of(sk, &ours);
	if (!ours)
		return 0;
	e = event_of(sk, m, KIND_CONNECTION);
	if (!e)
		return 0;
	e->t.state = before;
	counts(&e->t, sk);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Makes the record of what happened to a socket, if that is the Pod's. */
static __always_inline struct rare_tcp *happened(const struct sock *sk, enum kind kind)
{
	struct maker *m;
	bool ours;

	if (!sk || !nearby(sk))
		return 0;
	m = maker_of(sk, &ours);
	return ours ? event_of(sk, m, kind) : 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(sonde_retransmit, const struct sock *sk, const struct sk_buff *skb)
{
	struct rare_tcp *e = happened(sk, KIND_RETRANSMIT);

	if (!e)
		return 0;
	counts(&e->t, sk);
	if (skb)
		e->t.bytes = skb->len;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline int reset(const struct sock *sk, enum side by)
{
	struct rare_tcp *e = happened(sk, KIND_RESET);

	if (!e)
		return 0;
	e->t.by = by;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/tcp_send_reset")
int BPF_PROG(sonde_reset_sent, const struct sock *sk)
{
	return reset(sk, SIDE_LOCAL);
}

SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(sonde_reset_received, const struct sock *sk)
{
	return reset(sk, SIDE_REMOTE);
}

/* The address of a Unix socket, or else of the one that it is connected to. */
static __always_inline void unix_name(struct open_socket *s, struct sock *sk)
{
	struct unix_sock *u = (struct unix_sock *)sk, *peer;
	struct unix_address *a;
	__u32 n;

	if (!bpf_core_field_exists(u->addr)) /* a module's */
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

SEC("iter/task_file")
int sonde_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *t = ctx->task;
	struct file *file = ctx->file;
	struct open_socket s = {};
	struct socket *socket;
	struct cgroup *g;
	struct maker *m;
	struct sock *sk;

	if (!t || !file)
		return 0;
	g = cgroup_of(t);
	if (!within(g) || !of_command(t))
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk)
		return 0;
	begin(&s.r, t, g, KIND_CONNECTION);
	s.inode = file->f_inode->i_ino;
	s.type = socket->type;
	s.t.family = sk->__sk_common.skc_family;
	s.t.protocol = sk->sk_protocol;
	if (s.t.family == AF_UNIX)
		unix_name(&s, sk);
	if (s.t.family == AF_INET || s.t.family == AF_INET6)
		endpoints(&s.t, sk);
	if (s.t.protocol == IPPROTO_TCP && s.t.family != AF_UNIX) {
		counts(&s.t, sk);
		m = bpf_sk_storage_get(&makers, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (m) {
			if (!m->r.cgroup)
				m->r = s.r;
			s.r = m->r;
			s.t.begun = m->begun;
			s.t.role = m->role;
		}
	}
	bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
	return 0;
}

#endif
