/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Finds the process of a packet (docs/adr/0021-processes.md). Part of packets.bpf.c.
 *
 * An outgoing packet has its socket. For an incoming one the kernel is asked which socket would receive it: the packet's own
 * socket is that of a sender in another network namespace. Where that answer could be wrong, the packet has a reason instead.
 */
#ifndef SONDE_ATTRIBUTION_H
#define SONDE_ATTRIBUTION_H

#include <bpf/bpf_endian.h>

#define ATTRIBUTE true
#define OPTIONS_SPARE 24	/* bytes that copy_options may write after the options */

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define SOCK_STREAM 1
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define FRAGMENT_OFFSET 0x1fff
#define ETHERNET_HEADER 14
#define CURRENT_NETNS (~0ULL)	/* BPF_F_CURRENT_NETNS */
#define PRE_ROUTING 0
#define NOT_FORWARDED 4		/* BPF_FIB_LKUP_RET_NOT_FWDED: for this host */
#define FORWARDING_OFF 5	/* BPF_FIB_LKUP_RET_FWD_DISABLED */
#define VLAN_NUMBER 0x0fff	/* VLAN_VID_MASK; zero is no VLAN */
#define LOOPBACK_INDEX 1	/* LOOPBACK_IFINDEX */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct netns_nf {
	void *hooks_ipv4[1];
	void *hooks_ipv6[1];
};

struct net___nf {
	struct netns_nf nf;
};

struct sock_reuseport {
	void *prog;
};

struct sock___packet {
	struct socket___packet *sk_socket;
	struct sock_reuseport *sk_reuseport_cb;
};

struct socket___packet {
	struct file___count *file;
};

/* Before Linux 6.13. */
struct file___count {
	struct {
		__s64 counter;
	} f_count;
};

struct file___ref {
	struct {
		struct {
			__s64 counter;
		} refcnt;
	} f_ref;
};

#pragma clang attribute pop

/* Packets without a process, by reason, of each CPU. Those with one are counted by the ring's counter. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[FIRST_GROUP]);
} outcomes SEC(".maps");

/* Packets whose process the next scan may find: those with one of these reasons. */
__u64 doubts = 0;

#define DOUBTFUL (1ULL << REASON_UNSEEN | 1ULL << REASON_FORKED | 1ULL << REASON_PASSED | 1ULL << REASON_SHARED | \
		  1ULL << REASON_TOO_MANY | 1ULL << REASON_ENDED | 1ULL << REASON_IO_URING | 1ULL << REASON_UNSETTLED)

/* Returns a socket as a number: the verifier forbids arithmetic with the pointer itself. */
static __always_inline void *plain(struct bpf_sock *sk)
{
	void *s = 0;

	bpf_probe_read_kernel(&s, sizeof(s), &sk);
	return s;
}

/*
 * Returns the address of the MPTCP socket that has a TCP connection; zero if none has it. The helper bpf_skc_to_mptcp_sock would
 * do the same, but it takes the raw socket by which the kernel sends resets for a connection, reads past its end, and so can
 * crash the node (seen with Linux 6.1). A global function is verified once, not at each place of its use.
 */
__noinline __u64 mptcp_socket(__u64 connection)
{
	struct mptcp_subflow_context *subflow = 0;

	if (!bpf_core_field_exists(subflow->conn) || !BPF_CORE_READ((struct tcp_sock___mptcp *)connection, is_mptcp))
		return 0;
	subflow = BPF_CORE_READ((struct inet_connection_sock *)connection, icsk_ulp_data);
	return subflow ? (__u64)BPF_CORE_READ(subflow, conn) : 0;
}

/*
 * Returns the claim of the MPTCP socket that has a connection, which a scan may have found: the connection is the kernel's own
 * socket.
 */
static __always_inline struct mptcp_claim *claim_above(struct bpf_sock *sk, __u64 *address)
{
	__u64 m, cookie;

	if (sk->type != SOCK_STREAM || sk->protocol != IPPROTO_TCP)
		return 0;
	m = mptcp_socket((__u64)plain(sk));
	if (!m)
		return 0;
	cookie = BPF_CORE_READ((struct sock___process *)m, __sk_common.skc_cookie.counter);
	*address = m;
	return bpf_map_lookup_elem(&mptcp_claims, &cookie);
}

/* Keeps the order of reads before and after it. x86 does so itself; elsewhere an atomic operation is the only full barrier. */
static __always_inline void order_reads(void)
{
#if defined(__TARGET_ARCH_x86)
	barrier();
#else
	__u64 none = 0, before = __sync_fetch_and_add(&none, 0);

	barrier_var(before);	/* an operation whose result is not used is no barrier */
#endif
}

/*
 * Whether any process has a socket, by its address. A connection that no process has accepted yet is not open. A file without
 * references is about to be closed.
 */
__noinline int is_open(__u64 address)
{
	struct sock___packet *s = (void *)address;
	struct socket___packet *socket = BPF_CORE_READ(s, sk_socket);
	struct file___count *file = socket ? BPF_CORE_READ(socket, file) : 0;
	bool open = false;

	if (!file)
		return 0;
	if (bpf_core_field_exists(file->f_count))
		open = BPF_CORE_READ(file, f_count.counter) > 0;
	else if (bpf_core_field_exists(((struct file___ref *)0)->f_ref))
		open = BPF_CORE_READ((struct file___ref *)file, f_ref.refcnt.counter) >= 0; /* zero is one reference */
	order_reads();
	return open && BPF_CORE_READ(s, sk_socket) == socket;	/* else another file may have its memory */
}

/* A socket's claim, and the address of the socket that a process has: of an MPTCP connection, the one above it. */
struct claimed {
	__u64 claim;
	__u64 socket;
};

/*
 * Whether a claim that was made before its process forked is valid: no child of that time can hold the socket any more, and it is
 * open, so that the process itself holds it.
 */
static __always_inline bool is_held(struct process *p, struct claimed *c)
{
	if (__sync_fetch_and_add(&p->children, 0))	/* atomic, so that the rest is read later */
		return false;
	return *(volatile __u32 *)&p->floor <= c->claim >> 32 && is_open(c->socket);
}

/* Returns the slot of a claim, if it is valid but for passed sockets. */
static __always_inline __u32 slot_by_claim(struct claimed *c)
{
	__u64 claim = c->claim;
	struct process *p = record_at(slot_of(claim));

	if (!p || (__u32)p->claim != (__u32)claim)
		return REASON_ENDED;
	if (p->claim >> 32 != claim >> 32 && !is_held(p, c))
		return REASON_FORKED;
	return sole && sole != (__u32)claim ? reason_of_doubt() : slot_of(claim);
}

/* Returns the slot of a socket's claim, if the claim is valid. */
static __always_inline __u32 slot_by_socket(struct bpf_sock *sk, struct claimed *c)
{
	struct owner *o = bpf_sk_storage_get(&owners, sk, 0, 0);
	__u64 address = (__u64)sk, before;
	struct mptcp_claim *above = 0;
	bool own = o && o->address == address;

	c->claim = REASON_UNSEEN;
	c->socket = (__u64)plain(sk);
	if (!own)	/* it has none, or its listener's */
		above = claim_above(sk, &address);
	if (above) {
		own = true;
		c->claim = *(volatile __u64 *)&above->claim;
		c->socket = address;
		before = above->passes;
	} else if (o) {
		address = (__u64)sk;
		c->claim = *(volatile __u64 *)&o->claim;
		before = o->passes;
	} else {
		return REASON_UNSEEN;
	}
	if (!own && listener_pass > before) /* it may have been passed with its listener */
		return REASON_PASSED;
	return passed_after(&address, before) ? REASON_PASSED : slot_by_claim(c);
}

/* Returns a full socket: of a connection that is not yet established, the listener. */
static __always_inline struct bpf_sock *full_socket(struct bpf_sock *sk)
{
	struct bpf_sock *full = bpf_sk_fullsock(sk);

	return full ? full : bpf_get_listener_sock(sk);
}

static __always_inline __u32 slot_of_sender(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk, *full;
	struct socket___packet *socket;
	struct sock___packet *s;
	struct claimed c;
	__u32 slot;

	if (!sk)
		return REASON_NO_SENDER;
	full = full_socket(sk);
	if (!full)
		return REASON_CLOSED;
	slot = slot_by_socket(full, &c);
	if (slot != REASON_UNSEEN)
		return slot;
	s = plain(sk);
	socket = BPF_CORE_READ(s, sk_socket);
	return socket && !BPF_CORE_READ(socket, file) ? REASON_KERNEL : slot;
}

#include "flows.h"
#include "addresses.h"

/* Whether a program chooses among the sockets of a port. The kernel's answer has ignored it. */
static __always_inline bool is_balanced(struct bpf_sock *sk)
{
	struct owner *o = bpf_sk_storage_get(&owners, sk, 0, 0); /* an MPTCP listener has no group */
	struct sock___packet *s;
	struct sock_reuseport *group;

	if (!o)
		return false;
	s = (void *)o->address;
	group = BPF_CORE_READ(s, sk_reuseport_cb);
	return group && BPF_CORE_READ(group, prog);
}

/*
 * Whether the kernel forwards a packet: its address is not the Pod's, so that no socket receives it. The kernel does not tell
 * packets for this host from those without a route, and tells nothing if it does not forward.
 */
static __noinline bool is_forwarded(struct __sk_buff *skb, struct flow_key *key)
{
	struct bpf_fib_lookup route = { .family = key->ipv4 ? AF_INET : AF_INET6, .ifindex = skb->ifindex };
	long result;

	if (key->ipv4) {
		route.source[0] = key->tuple.ipv4.saddr;
		route.destination[0] = key->tuple.ipv4.daddr;
	} else {
		__builtin_memcpy(route.source, key->tuple.ipv6.saddr, sizeof(route.source));
		__builtin_memcpy(route.destination, key->tuple.ipv6.daddr, sizeof(route.destination));
	}
	result = bpf_fib_lookup(skb, &route, sizeof(route), 0);
	return result >= 0 && result != NOT_FORWARDED && result != FORWARDING_OFF;
}

/* Whether a socket receives at all addresses, of a packet's version of IP. */
static __always_inline bool is_for_any(struct bpf_sock *sk, struct flow_key *key)
{
	if (sk->family == AF_INET)
		return !sk->src_ip4;
	if (key->ipv4)
		return !sk->src_ip6[3];	/* it may have an IPv4 address in IPv6 form */
	return !(sk->src_ip6[0] | sk->src_ip6[1] | sk->src_ip6[2] | sk->src_ip6[3]);
}

/* Returns the slot of a socket that the kernel has found for a flow, and remembers the socket. */
static __always_inline __u32 slot_of_found(struct __sk_buff *skb, struct bpf_sock *sk, struct flow_key *key)
{
	struct bpf_sock *full = full_socket(sk);
	struct claimed c;
	__u32 slot;

	if (!full)
		return REASON_CLOSED;
	if (!full->dst_port) { /* not connected: its port alone has decided */
		if (has_rules(skb, key->ipv4))
			return REASON_NETFILTER;
		if (is_forwarded(skb, key) || (is_for_any(full, key) && !is_own(skb, key)))
			return REASON_NO_RECEIVER;
		if (is_balanced(full))
			return REASON_BALANCED;
	}
	slot = slot_by_socket(full, &c);
	if (!passes && slot >= FIRST_GROUP)
		remember(key, full, &c);
	return slot;
}

/*
 * Asks the kernel for the socket of a flow. It is a function of its own so that packets of remembered flows pass less code, and a global one
 * because the verifier checks these once. With a static one, which it checks for each way to the call, it took five times as long.
 */
__noinline __u32 slot_by_kernel(struct __sk_buff *skb, struct flow_key *key)
{
	struct bpf_sock *sk;
	__u32 size, slot;

	if (!key) /* never, but the verifier asks */
		return REASON_PROTOCOL;
	size = key->ipv4 ? sizeof(key->tuple.ipv4) : sizeof(key->tuple.ipv6);
	if (key->protocol == IPPROTO_TCP)
		sk = bpf_skc_lookup_tcp(skb, &key->tuple, size, CURRENT_NETNS, 0);
	else
		sk = bpf_sk_lookup_udp(skb, &key->tuple, size, CURRENT_NETNS, 0);
	if (!sk)
		return has_rules(skb, key->ipv4) ? REASON_NETFILTER : REASON_NO_RECEIVER;
	slot = slot_of_found(skb, sk, key);
	bpf_sk_release(sk);
	return slot;
}

static __always_inline __u32 slot_of_receiver(struct __sk_buff *skb, struct flow_key *key)
{
	__u32 slot = recall(skb, key);

	return slot ? slot : slot_by_kernel(skb, key);
}

struct ipv4 {
	__u8 version_and_length;
	__u8 service;
	__u16 length;
	__u16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__be32 source;
	__be32 destination;
};

struct ipv6 {
	__be32 version_and_class;
	__be16 length;
	__u8 next;
	__u8 hops;
	__be32 source[4];
	__be32 destination[4];
};

/*
 * Reads bytes of a packet, a multiple of 4. Most are in its linear part. The compiler would load bytes of an unknown alignment one
 * by one.
 */
static __always_inline bool load(struct __sk_buff *skb, __u32 at, __u32 *to, __u32 length)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 *from = data + at;

	if (data + at + length > end)
		return !bpf_skb_load_bytes(skb, at, to, length);
#pragma unroll
	for (int i = 0; i < length / 4; i++)
		to[i] = from[i];
	return true;
}

static __always_inline bool is_loopback_ipv4(__be32 address)
{
	return (address & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
}

/* Whether an IPv6 address is ::1 or an IPv4-mapped one (RFC 4291). The kernel drops packets from elsewhere that have one of these. */
static __always_inline bool is_loopback_or_mapped(const __be32 *a)
{
	return !(a[0] | a[1]) && (a[2] == bpf_htonl(0xffff) || (!a[2] && a[3] == bpf_htonl(1)));
}

static __always_inline __u32 slot_by_ipv4(struct __sk_buff *skb, __u32 at)
{
	struct flow_key key = { .ipv4 = true };
	struct ipv4 ip;

	if (!load(skb, at, (__u32 *)&ip, sizeof(ip)))
		return REASON_PROTOCOL;
	/* The kernel drops it, unless the interface has route_localnet. The look-up would find sockets that only the Pod can reach. */
	if ((is_loopback_ipv4(ip.source) || is_loopback_ipv4(ip.destination)) && skb->ifindex != LOOPBACK_INDEX)
		return REASON_NO_RECEIVER;
	if (ip.fragment & bpf_htons(FRAGMENT_OFFSET))
		return REASON_FRAGMENT;
	if ((ip.destination & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || ip.destination == ~0U)
		return REASON_MULTICAST;
	if (ip.protocol != IPPROTO_TCP && ip.protocol != IPPROTO_UDP)
		return REASON_PROTOCOL;
	if (!load(skb, at + (ip.version_and_length & 15) * 4, (__u32 *)&key.tuple.ipv4.sport, 4))
		return REASON_PROTOCOL;
	key.tuple.ipv4.saddr = ip.source;
	key.tuple.ipv4.daddr = ip.destination;
	key.protocol = ip.protocol;
	return slot_of_receiver(skb, &key);
}

static __always_inline __u32 slot_by_ipv6(struct __sk_buff *skb, __u32 at)
{
	struct flow_key key = {};
	struct ipv6 ip;

	if (!load(skb, at, (__u32 *)&ip, sizeof(ip)))
		return REASON_PROTOCOL;
	if ((is_loopback_or_mapped(ip.source) || is_loopback_or_mapped(ip.destination)) && skb->ifindex != LOOPBACK_INDEX)
		return REASON_NO_RECEIVER; /* as above */
	if (*(__u8 *)ip.destination == 0xff)
		return REASON_MULTICAST;
	switch (ip.next) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
		break;
	case 0: /* hop-by-hop */
	case 43: /* routing */
	case 44: /* fragment */
	case 51: /* authentication */
	case 60: /* destination options */
		return REASON_EXTENSION;
	default:
		return REASON_PROTOCOL;
	}
	if (!load(skb, at + sizeof(ip), (__u32 *)&key.tuple.ipv6.sport, 4))
		return REASON_PROTOCOL;
	__builtin_memcpy(key.tuple.ipv6.saddr, ip.source, sizeof(ip.source));
	__builtin_memcpy(key.tuple.ipv6.daddr, ip.destination, sizeof(ip.destination));
	key.protocol = ip.next;
	return slot_of_receiver(skb, &key);
}

/*
 * Whether a packet has the tag of a VLAN that its interface does not have: the kernel takes it for one for another host, after the
 * programs at tc. Which of several VLANs an interface has is not looked at.
 */
static __always_inline bool is_of_other_vlan(struct __sk_buff *skb)
{
	struct sk_buff___device *b = 0;

	if (!skb->vlan_present || !(skb->vlan_tci & VLAN_NUMBER))
		return false;
	if (!bpf_core_field_exists(((struct net_device___in *)0)->vlan_info))
		return true;
	bpf_probe_read_kernel(&b, sizeof(b), &skb);
	return !BPF_CORE_READ(b, dev, vlan_info);
}

/* Returns the slot of the record that describes a packet. */
static __always_inline __u32 slot_of_packet(struct __sk_buff *skb, bool ethernet, bool out)
{
	__u32 at = ethernet ? ETHERNET_HEADER : 0;

	if (out)
		return slot_of_sender(skb);
	switch (skb->pkt_type) {
	case 1: /* PACKET_BROADCAST */
	case 2: /* PACKET_MULTICAST */
		return skb->protocol == bpf_htons(ETHERTYPE_IPV4) || skb->protocol == bpf_htons(ETHERTYPE_IPV6) ?
			REASON_MULTICAST : REASON_NOT_IP;
	case 3: /* PACKET_OTHERHOST */
		return REASON_OTHER_HOST;
	}
	if (is_of_other_vlan(skb))
		return REASON_OTHER_HOST;
	if (skb->protocol == bpf_htons(ETHERTYPE_IPV4))
		return slot_by_ipv4(skb, at);
	if (skb->protocol == bpf_htons(ETHERTYPE_IPV6))
		return slot_by_ipv6(skb, at);
	return REASON_NOT_IP;
}

/*
 * Copies the options that name a packet's process, in chunks of a constant size, which need no helper. The last one may go beyond
 * the end of the block, so the block reserves OPTIONS_SPARE bytes more than it takes. The words are copied one by one, because
 * the compiler would copy bytes of an unknown alignment one by one.
 */
static __always_inline void copy_options(void *to, struct options *o, __u32 length)
{
	__u64 *words = to, *from = (void *)o->bytes;

#pragma unroll
	for (int i = 0; i < OPTIONS_MAX / 8; i++) {
		if (i && i % (OPTIONS_SPARE / 8) == 0 && i * 8 >= length)
			break;
		words[i] = from[i];
	}
}

/*
 * Replaces copied options by a comment and an end mark, where readers stop. The options of each process are longer: a comment of
 * its name and numbers, and the custom option.
 */
static __always_inline void name_none(__u32 *to)
{
	static const char text[16] = "process unknown";

	to[0] = 1 | 15 << 16;	/* opt_comment and its length */
	__builtin_memcpy(to + 1, text, sizeof(text));
	to[5] = 0;
}

/* The options of a record, and which of its two buffers has them. */
struct description {
	struct process *record;
	struct options *options;
	__u32 current;
	__u32 length;
};

/* Finds the options that describe a packet; none only if the slot has no record. */
static __always_inline void describe(struct description *d, __u32 slot)
{
	d->record = record_at(slot);
	if (!d->record)
		return;
	d->current = *(volatile __u32 *)&d->record->current;
	d->options = &d->record->options[d->current & 1];
	d->length = d->options->length;
}

/* Whether the options that describe() has found were not overwritten. The next write goes to the other buffer, and only the one after it here. */
static __always_inline bool is_whole(struct description *d)
{
	order_reads(); /* what was copied was read before */
	return *(volatile __u32 *)&d->record->begun - d->current <= 1;
}

/* The slot of a packet whose process has become unknown. */
static __always_inline __u32 unknown_slot(void)
{
	return REASON_UNSEEN;
}

static __always_inline void count_outcome(struct ring *ring, __u32 slot)
{
	__u32 i = slot < FIRST_GROUP ? slot : REASON_SHARED;
	__u32 cpu = bpf_get_smp_processor_id();
	__u64 *counts;

	if (slot >= FIRST_PROCESS) {
		ring->counter++;
		return;
	}
	counts = bpf_map_lookup_elem(&outcomes, &cpu);
	if (counts)
		counts[i & (FIRST_GROUP - 1)]++;
	if (DOUBTFUL >> (i & (FIRST_GROUP - 1)) & 1)
		__sync_fetch_and_add(&doubts, 1);
}

#endif
