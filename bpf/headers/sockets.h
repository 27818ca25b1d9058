/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Which process has which socket (docs/adr/0021-processes.md). Part of packets.bpf.c; loaded and attached only if packets name
 * processes.
 *
 * sonde_create   cgroup/sock_create: a process has made a socket. An accepted socket inherits its listener's claim.
 * sonde_fork     tp_btf/sched_process_fork: a child has all sockets of its parent, which voids the parent's claims.
 * sonde_exec     tp_btf/sched_process_exec: a child that has kept no socket makes the claims valid again.
 * sonde_rename   tp_btf/task_rename: a process has a new name.
 * sonde_end      tp_btf/sched_process_exit: a process has ended.
 * sonde_accept   tp_btf/inet_sock_set_state: there is a connection that a process will accept.
 * sonde_receive  tp_btf/skb_copy_datagram_iovec: a process may have received sockets over a Unix socket.
 * sonde_scan     iter/task_file: reads or writes who has which socket, once without and once with commit; read, not attached.
 *
 * All need Linux 5.19 (bpf_skc_to_mptcp_sock). sonde_receive runs for each received segment of the node, sonde_create for each socket of the
 * Pod, or of the node if its cgroups are of version 1. The others run for each process of the node.
 *
 * Input: the constants below. Output: claims in owners, and the records of processes.h. Lost: a socket that is taken by
 * pidfd_getfd(2) keeps its old claim until the next scan. Tests: agents/capture, process_test.go.
 */
#ifndef SONDE_SOCKETS_H
#define SONDE_SOCKETS_H

#define MAP_LRU_HASH 9	/* BPF_MAP_TYPE_LRU_HASH */
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_MPTCP 262
#define TCP_SYN_RECV 3
#define TCP_LISTEN 10
#define FILE_TYPE 0170000	/* S_IFMT */
#define FILE_SOCKET 0140000	/* S_IFSOCK */
#define MAX_FILES 4096	/* descriptors that an exec looks at */
#define MAX_PASSED 253	/* SCM_MAX_FD */

/* The Pod's network namespace: its number, and its cookie. */
volatile const __u32 netns = 0;
volatile const __u64 netns_cookie = 0;

/* The scan that sonde_scan makes: its number, whether it writes, and up to which pass it has seen the effects of all. */
__u32 scan = 0;
bool commit = false;
__u64 scan_passes = 0;

/* The address of the Pod's network namespace, once a process of it has shown it. */
__u64 net_address = 0;

/* How often scans have written. */
__u64 commits = 0;

/* How often a socket was passed to a process, and the number of the last pass of a listener. */
__u64 passes = 0;
__u64 listener_pass = 0;

/* Whether a process was forked that has no record: its own children are not noticed, so that no claim is sure any more. */
bool blind = false;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct scm_fp_list {
	short count;
	struct file___process *fp[MAX_PASSED];
};

struct unix_skb_parms {
	struct scm_fp_list *fp;
};

struct sk_buff___process {
	struct sock *sk;
	char cb[48];
};

struct socket___process {
	struct sock *sk;
};

struct sock___process {
	struct sock_common___process {
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
	struct sock___process *conn;
};

struct nsproxy {
	struct net *net_ns;
};

struct task_struct___net {
	struct nsproxy *nsproxy;
};

#pragma clang attribute pop

struct owner {
	__u64 claim;
	__u64 seen;	/* the claim that a scan has found */
	__u64 address;	/* of the struct sock; the listener's until a scan has found the accepted socket */
	__u64 passes;	/* the claim is void if the socket was passed after this many passes */
	__u32 scan;	/* the last scan that has found the socket */
	__u32 several;	/* that scan has found several processes */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct owner);
} owners SEC(".maps");

/* The number of each socket's last pass, by the address of its struct sock. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} passed SEC(".maps");

/* Claims of groups of processes, by the address of the socket that they share; user space writes them between two scans. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} groups SEC(".maps");

/* The claims of MPTCP sockets, by cookie, for the connections that their listeners take. */
struct mptcp_claim {
	__u64 claim;
	__u64 passes;
};

struct {
	__uint(type, MAP_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct mptcp_claim);
} mptcp_claims SEC(".maps");

/* The output of sonde_scan for each file that is a socket of the Pod's network namespace. */
struct holding {
	__u64 socket;
	__u64 claim;
	__u64 container;
	__u32 pid;	/* on the node */
	__u32 tgid;	/* in the first PID namespace */
};

const struct holding *holding_type __attribute__((unused));

/* Whether a socket may have been passed since its claim was made. */
static __always_inline bool was_passed(struct owner *o, __u64 *address)
{
	__u64 *n;

	if (!passes)
		return false;
	if (o->address != *address && listener_pass > o->passes) /* it may have been passed with its listener */
		return true;
	n = bpf_map_lookup_elem(&passed, address);
	return n && *n > o->passes;
}

/* Notes the address of a process's network namespace, if it is the Pod's. */
static __always_inline void note_net(struct task_struct___process *task)
{
	struct task_struct___net *t = (void *)task;
	struct net *net;

	if (net_address)
		return;
	net = BPF_CORE_READ(t, nsproxy, net_ns);
	if (BPF_CORE_READ(net, ns.inum) == netns)
		net_address = (__u64)net;
}

/* Whether a socket is an IP socket of the Pod's network namespace. */
static __always_inline bool is_inet(const struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	struct net *net;

	if (family != AF_INET && family != AF_INET6)
		return false;
	net = BPF_CORE_READ(sk, __sk_common.skc_net.net);
	if (net_address)
		return (__u64)net == net_address;
	if (BPF_CORE_READ(net, ns.inum) != netns)
		return false;
	net_address = (__u64)net;
	return true;
}

/* Returns the IP socket of the Pod's network namespace that a file is; zero if it is none. */
static __always_inline struct sock *socket_of(struct file___process *f)
{
	struct socket___process *s;
	struct sock *sk;

	if (!f || (BPF_CORE_READ(f, f_inode, i_mode) & FILE_TYPE) != FILE_SOCKET)
		return 0;
	s = BPF_CORE_READ(f, private_data);
	sk = s ? BPF_CORE_READ(s, sk) : 0;
	return sk && is_inet(sk) ? sk : 0;
}

static __always_inline void note_mptcp(struct owner *o, __u64 cookie)
{
	struct mptcp_claim c = { o->claim, o->passes };

	bpf_map_update_elem(&mptcp_claims, &cookie, &c, 0);
}

SEC("cgroup/sock_create")
int sonde_create(struct bpf_sock *s)
{
	struct task_struct___process *t;
	struct owner *o;
	__u64 address = (__u64)s, cookie;

	if ((s->family != AF_INET && s->family != AF_INET6) || bpf_get_netns_cookie(s) != netns_cookie)
		return 1;
	t = (void *)bpf_get_current_task();
	note_net(t);
	if (!is_pods(t))
		return 1;
	o = bpf_sk_storage_get(&owners, s, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (o) {
		cookie = bpf_get_socket_cookie(s); /* which makes it: flows.h tells sockets apart by cookies */
		o->address = address;
		o->passes = passes;
		o->claim = claim_of(t);
		if (s->protocol == IPPROTO_MPTCP)
			note_mptcp(o, cookie);
	}
	return 1;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sonde_fork, struct task_struct *from, struct task_struct *to)
{
	struct task_struct___process *parent = (void *)from, *child = (void *)to;
	struct process *p, *c;

	if (from->tgid == to->tgid || !is_pods(parent))
		return 0;
	p = process_of(parent);
	c = process_of(child);
	if (p) {
		__sync_fetch_and_add(&p->children, 1);
		__sync_fetch_and_add(&p->claim, 1ULL << 32);
	}
	if (c) {
		c->parent = p ? (__u32)p->claim : 0;
		c->forked = __sync_fetch_and_add(&forks, 1) + 1;
	} else {
		blind = true;
	}
	return 0;
}

/* A child holds no socket of its parent any more. */
static __always_inline void release(struct process *c)
{
	struct process *p = record_at(slot_of(c->parent));

	if (c->parent && p && (__u32)p->claim == c->parent)
		__sync_fetch_and_add(&p->children, -1);
	c->parent = 0;
	c->forked = 0;
}

struct search {
	struct file___process **files;
	bool found;
};

static long search_file(__u32 i, struct search *s)
{
	struct file___process *f = 0;

	bpf_probe_read_kernel(&f, sizeof(f), &s->files[i]);
	if (!socket_of(f))
		return 0;
	s->found = true;
	return 1;
}

/* Whether a process may have a socket of the Pod's network namespace. */
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
	if (p->parent && !p->children && !has_socket(t))
		release(p);
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
	bpf_map_delete_elem(&processes, &tgid);
	if (p->parent && !p->children) /* else its children may hold the parent's sockets */
		release(p);
	p->used = 0;
	return 0;
}

static long receive_file(__u32 i, struct scm_fp_list **list)
{
	struct file___process *f = 0;
	__u64 address, n;
	struct sock *sk;

	bpf_probe_read_kernel(&f, sizeof(f), (void *)*list + bpf_core_field_offset(struct scm_fp_list, fp) + i * sizeof(f));
	sk = socket_of(f);
	if (!sk)
		return 0;
	address = (__u64)sk;
	n = __sync_fetch_and_add(&passes, 1) + 1;
	if (bpf_map_update_elem(&passed, &address, &n, 0))
		blind = true;
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_LISTEN)
		listener_pass = n;
	return 0;
}

SEC("tp_btf/skb_copy_datagram_iovec")
int BPF_PROG(sonde_receive, struct sk_buff *buffer)
{
	struct sk_buff___process *skb = (void *)buffer;
	struct scm_fp_list *list = 0;
	struct sock *sk = skb->sk;
	int n;

	if (!sk || sk->__sk_common.skc_family != AF_UNIX || !bpf_core_field_exists(((struct unix_skb_parms *)0)->fp))
		return 0;
	bpf_probe_read_kernel(&list, sizeof(list), (void *)skb + bpf_core_field_offset(struct sk_buff___process, cb) +
			      bpf_core_field_offset(struct unix_skb_parms, fp));
	if (!list)
		return 0;
	n = BPF_CORE_READ(list, count);
	if (n > 0 && n <= MAX_PASSED)
		bpf_loop(n, receive_file, &list, 0);
	return 0;
}

/*
 * Returns the owner of a new connection. The listener of MPTCP that took it is the kernel's own: the process has the MPTCP socket
 * above it, as Go's servers do by default. At this moment the connection still has its listener's link to that socket.
 */
static __always_inline struct owner *inherited(struct sock *sk)
{
	struct owner *o = bpf_sk_storage_get(&owners, sk, 0, 0);
	struct mptcp_subflow_context *subflow = 0;
	struct mptcp_claim *above;
	struct sock___process *m;
	__u64 cookie;

	if (o || !bpf_core_field_exists(subflow->conn) || !BPF_CORE_READ((struct tcp_sock___mptcp *)sk, is_mptcp))
		return o;
	subflow = BPF_CORE_READ((struct inet_connection_sock *)sk, icsk_ulp_data);
	m = subflow ? BPF_CORE_READ(subflow, conn) : 0;
	cookie = m ? BPF_CORE_READ(m, __sk_common.skc_cookie.counter) : 0;
	above = bpf_map_lookup_elem(&mptcp_claims, &cookie);
	o = above ? bpf_sk_storage_get(&owners, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE) : 0;
	if (!o)
		return 0;
	o->claim = above->claim;
	o->passes = above->passes;
	o->address = (__u64)m;
	return o;
}

/* An accepted socket does not inherit what has happened to its listener, or to another socket at its address. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(sonde_accept, const struct sock *sk, int from, int to)
{
	struct owner *o;

	if (to != TCP_SYN_RECV || !is_inet(sk))
		return 0;
	o = inherited((void *)sk);
	if (!o)
		return 0;
	bpf_get_socket_cookie((void *)sk); /* as in sonde_create */
	/* A listener that was passed has a claim that is in doubt, and so has the connection until the next scan. */
	o->passes = was_passed(o, &o->address) ? 0 : passes;
	return 0;
}

/* Notes that a process has a socket. */
static __always_inline void see(struct owner *o, __u64 address, __u64 claim)
{
	if (o->scan != scan || o->address != address) {
		o->address = address;
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
	if (!socket)
		return 0;
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
