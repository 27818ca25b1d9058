/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Follows the sockets of a captured Pod (docs/adr/0021-processes.md). Part of packets.bpf.c; loaded and attached only if packets
 * name processes.
 *
 * sonde_create   cgroup/sock_create: a process has made a socket. It runs for each socket of the Pod, or of the node if its
 *                cgroups are of version 1.
 * sonde_accept   tp_btf/inet_sock_set_state: there is a connection that a process will accept; it inherits its listener's claim.
 * sonde_receive  tp_btf/skb_copy_datagram_iovec: a process may have received sockets over a Unix socket. It runs for each
 *                received segment of the node.
 *
 * All need Linux 5.17 (bpf_loop). Input: the constants of sockets.h. Output: claims in owners. Lost: a socket that is taken by
 * pidfd_getfd(2), or given by SECCOMP_IOCTL_NOTIF_ADDFD, keeps its claim until the next scan. Tests:
 * agents/capture/processes.
 */
#ifndef SONDE_SOCKET_EVENTS_H
#define SONDE_SOCKET_EVENTS_H

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
		o->claim = shares_files(t) ? REASON_SHARED : claim_of(t);
		if (s->protocol == IPPROTO_MPTCP)
			note_mptcp(o, cookie);
	}
	return 1;
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
		void_all();
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
	/*
	 * A listener that was passed, also before it listened, has a claim that is in doubt. So has the connection, until a scan
	 * finds it.
	 */
	if (was_passed(o, &o->address))
		o->claim = REASON_PASSED;
	o->passes = passes;
	return 0;
}

#endif
