/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * What is known of the sockets of the Pod's network namespace (docs/adr/0021-processes.md): their claims, and how often they
 * were passed. Part of packets.bpf.c, for captures that name processes; process_events.h, socket_events.h and scan.h fill it.
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

/* Whether no scan has had a result for so long that no claim is sure; user space sets it. */
bool stale = false;

#define NO_PROCESS (~0U)
#define ALWAYS (~0U)

/*
 * The only process whose claims are valid, by the lower half of its claim; zero if those of all processes are, and NO_PROCESS if
 * none is. Programs only narrow it; user space sets it to next_sole when a scan has written, unless blind or stale. next_sole is
 * what has narrowed it since that scan began.
 */
__u32 sole = 0;
__u32 next_sole = 0;

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

struct files_struct___users {
	atomic_t count;
};

struct signal_struct___threads {
	int nr_threads;
};

struct task_struct___files {
	struct files_struct___users *files;
	struct signal_struct___threads *signal;
	struct task_struct___files *group_leader;
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

static __always_inline void narrow_to(__u32 *to, __u32 claim)
{
	__u32 before = __sync_val_compare_and_swap(to, 0, claim);

	if (before && before != claim)
		*(volatile __u32 *)to = NO_PROCESS;
}

/* Voids the claims of all processes but one, or with NO_PROCESS of all. User space relies on the order. */
static __always_inline void void_others(__u32 claim)
{
	narrow_to(&next_sole, claim);
	narrow_to(&sole, claim);
}

/* Voids all claims until the capture ends. */
static __always_inline void void_all(void)
{
	blind = true;
	void_others(NO_PROCESS);
}

/* Why a claim is void that is not the one in sole. */
static __always_inline __u32 reason_of_doubt(void)
{
	if (blind)
		return REASON_TOO_MANY;
	return stale ? REASON_UNSETTLED : REASON_IO_URING;
}

/* Whether the socket at an address was passed after a number of passes. */
static __always_inline bool passed_after(__u64 *address, __u64 before)
{
	__u64 *n = passes ? bpf_map_lookup_elem(&passed, address) : 0;

	return n && *n > before;
}

/* Whether a socket may have been passed since its claim was made. */
static __always_inline bool was_passed(struct owner *o, __u64 *address)
{
	if (!passes)
		return false;
	if (o->address != *address && listener_pass > o->passes) /* it may have been passed with its listener */
		return true;
	return passed_after(address, o->passes);
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

/*
 * Whether another process may have the same table of files (CLONE_FILES without CLONE_THREAD), and so each new socket. Threads with
 * tables of their own hide such a process in the count, so a scan and each fork note more in the process's record.
 */
static __always_inline bool shares_files(struct task_struct___process *task)
{
	struct task_struct___files *t = (void *)task;
	__u32 tgid = BPF_CORE_READ(task, tgid), *slot;
	struct process *p;

	if (BPF_CORE_READ(t, files, count.counter) > BPF_CORE_READ(t, signal, nr_threads))
		return true;
	slot = bpf_map_lookup_elem(&processes, &tgid);
	p = slot ? record_at(*slot) : 0;
	return p && p->tables && (p->tables == ALWAYS || p->tables + 1 >= scan);
}

/* Notes a process in a scan of threads, if one has a table of files of its own, or the process may share one. */
static __always_inline void see_table(struct task_struct___process *task)
{
	struct task_struct___files *t = (void *)task, *leader = BPF_CORE_READ(t, group_leader);
	struct files_struct___users *files = BPF_CORE_READ(t, files);
	struct process *p;

	if (!files || (files == BPF_CORE_READ(leader, files) &&
		       BPF_CORE_READ(files, count.counter) <= BPF_CORE_READ(t, signal, nr_threads)))
		return;
	if (!is_pods(task))
		return;
	p = process_of(task);
	if (p && p->tables != ALWAYS)
		p->tables = scan;
}

/* Whether a new process has its parent's table of files, and not a copy. */
static __always_inline bool has_same_files(struct task_struct___process *parent, struct task_struct___process *child)
{
	struct files_struct___users *files = BPF_CORE_READ((struct task_struct___files *)child, files);

	return files && files == BPF_CORE_READ((struct task_struct___files *)parent, files);
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

#endif
