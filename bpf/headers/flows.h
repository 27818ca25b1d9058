/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Remembers which sockets receive the packets of recent flows. Part of packets.bpf.c.
 *
 * A look-up costs several times as much as the rest. Its result stays true as long as the socket is there with the same
 * addresses and no other one can be preferred. That holds for an established TCP connection, and for a UDP socket that is alone in
 * the kernel's table of ports: each other UDP socket of its port, at any address, has the same slot there. The socket's own options
 * do not tell: two sockets can come to the same address in several ways, and clear the options then. As a socket is in the slot
 * before the kernel finds it, the programs look at the slot for each packet. The local address alone is the key of a UDP flow. The
 * cookie tells the socket from a later one at the same address. A scan that writes makes the programs look again.
 */
#ifndef SONDE_FLOWS_H
#define SONDE_FLOWS_H

#define FLOWS 256	/* of each CPU; a power of two */
#define TCP_ESTABLISHED 1

/* What is compared of a socket. */
struct bound {
	__u64 cookie;
	union {
		__u64 addresses;
		struct {
			__be32 remote_ip4;
			__be32 local_ip4;
		};
	};
	union {
		__u32 ports;
		struct {
			__be16 remote_port;	/* zero if it is not connected */
			__u16 local_port;	/* zero if it has left the look-up tables */
		};
	};
	__u16 family;
	__u8 state;
	__u8 reuse;	/* SO_REUSEADDR or SO_REUSEPORT: such a port can have other sockets, and a program that chooses */
	__u32 device;
	__u32 hash;	/* of a TCP connection: of its addresses and ports. IPv6 addresses are elsewhere */
};

struct flow_key {
	struct bpf_sock_tuple tuple;
	__u16 protocol;
	__u16 ipv4;
};

#define KEY_WORDS 5

struct flow {
	__u64 key[KEY_WORDS];
	__u64 socket;	/* the address of its struct sock; zero if none is remembered */
	struct claimed claimed;
	__u64 commits;
	struct bound bound;
	__u64 port;	/* the address of the slot of its UDP port in the kernel's table */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOWS);
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common___flow {
	__u64 skc_addrpair;
	unsigned int skc_hash;
	__u32 skc_portpair;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned char skc_reuse : 4;
	unsigned char skc_reuseport : 1;
	int skc_bound_dev_if;
	struct {
		__s64 counter;
	} skc_cookie;
};

struct udp_hslot {
	int count;
};

struct udp_table {
	struct udp_hslot *hash;
	unsigned int mask;
};

struct netns_ipv4___flow {
	struct udp_table *udp_table;
};

struct net___flow {
	struct netns_ipv4___flow ipv4;
	__u32 hash_mix;
};

struct proto___flow {
	union {
		struct udp_table *udp_table;
	} h;
};

struct sock___flow {
	struct {
		struct {
			struct net___flow *net;
		} skc_net;
		struct proto___flow *skc_prot;
	} __sk_common;
};

struct net_device___in {
	void *nf_hooks_ingress;
	void *vlan_info;
};

struct sk_buff___device {
	struct net_device___in *dev;
};

#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *object) __ksym __weak;

/* From Linux 6.3 the programs load the kernel's memory directly. A helper for each load takes as long as all else together. */
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

#define CAST(address, type) ((type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(type)))

/* Reads what must stay the same of a socket, and what else decides whether it can be remembered. */
static __always_inline void read_bound(struct bound *b, __u64 address)
{
	struct sock_common___flow *s = (void *)address;

	b->cookie = BPF_CORE_READ(s, skc_cookie.counter);
	b->addresses = BPF_CORE_READ(s, skc_addrpair);
	b->ports = BPF_CORE_READ(s, skc_portpair);
	b->family = BPF_CORE_READ(s, skc_family);
	b->state = BPF_CORE_READ(s, skc_state);
	b->reuse = BPF_CORE_READ_BITFIELD_PROBED(s, skc_reuse) || BPF_CORE_READ_BITFIELD_PROBED(s, skc_reuseport);
	b->device = BPF_CORE_READ(s, skc_bound_dev_if);
	b->hash = BPF_CORE_READ(s, skc_hash);
}

/*
 * Whether a remembered socket is still as it was. Its options to share a port do not matter any more: is_alone() tells more, and a
 * group that it was not in when it was bound can only come with another socket. A socket that is connected anew keeps its cookie, and
 * its hash alone says that its peer has another IPv6 address.
 */
static __always_inline bool is_unchanged(struct flow *f, bool ipv4)
{
	struct sock_common___flow *s = (void *)f->socket;

	if (bpf_rdonly_cast) {
		s = CAST(f->socket, struct sock_common___flow);
		return s->skc_cookie.counter == f->bound.cookie && s->skc_addrpair == f->bound.addresses &&
		       s->skc_portpair == f->bound.ports && s->skc_state == f->bound.state && !s->skc_bound_dev_if &&
		       (ipv4 || s->skc_hash == f->bound.hash);
	}
	return BPF_CORE_READ(s, skc_cookie.counter) == f->bound.cookie && BPF_CORE_READ(s, skc_addrpair) == f->bound.addresses &&
	       BPF_CORE_READ(s, skc_portpair) == f->bound.ports && BPF_CORE_READ(s, skc_state) == f->bound.state &&
	       !BPF_CORE_READ(s, skc_bound_dev_if) && (ipv4 || BPF_CORE_READ(s, skc_hash) == f->bound.hash);
}

/* Sets the words by which a flow is found. Those of an IPv4 flow are the first two. */
static __always_inline void set_words(__u64 *k, struct flow_key *key)
{
	bool tcp = key->protocol == IPPROTO_TCP;

	k[0] = (__u64)key->protocol << 32 | (__u64)key->ipv4 << 48;
	if (key->ipv4) {
		k[0] |= tcp ? *(__u32 *)&key->tuple.ipv4.sport : (__u32)key->tuple.ipv4.dport << 16;
		k[1] = tcp ? (__u64)key->tuple.ipv4.saddr << 32 | key->tuple.ipv4.daddr : key->tuple.ipv4.daddr;
		return;
	}
	k[0] |= tcp ? *(__u32 *)&key->tuple.ipv6.sport : (__u32)key->tuple.ipv6.dport << 16;
	__builtin_memcpy(k + 1, key->tuple.ipv6.daddr, 16);
	k[3] = k[4] = 0;
	if (tcp)
		__builtin_memcpy(k + 3, key->tuple.ipv6.saddr, 16);
}

static __always_inline bool is_key(struct flow *f, __u64 *k, bool ipv4)
{
	if (f->key[0] != k[0] || f->key[1] != k[1])
		return false;
	return ipv4 || (f->key[2] == k[2] && f->key[3] == k[3] && f->key[4] == k[4]);
}

static __always_inline struct flow *flow_of(__u64 *k, bool ipv4)
{
	__u64 h = k[0] ^ k[1];
	__u32 i;

	if (!ipv4)
		h ^= k[2] ^ k[3] ^ k[4];
	i = h * 0x9e3779b97f4a7c15ULL >> 40 & (FLOWS - 1);
	return bpf_map_lookup_elem(&flows, &i);
}

/* Whether the device that has received a packet has rules, which run after programs at tc. */
static __always_inline bool has_ingress_rules(struct __sk_buff *skb)
{
	struct sk_buff___device *s = 0;

	if (!bpf_core_field_exists(((struct net_device___in *)0)->nf_hooks_ingress))
		return false;
	if (bpf_rdonly_cast && bpf_cast_to_kern_ctx) {
		s = bpf_cast_to_kern_ctx(skb);
		return s->dev->nf_hooks_ingress;
	}
	bpf_probe_read_kernel(&s, sizeof(s), &skb);
	return BPF_CORE_READ(s, dev, nf_hooks_ingress);
}

/* Whether rules of netfilter may change the receiver of packets before sockets are looked up. */
static __always_inline bool has_rules(struct __sk_buff *skb, bool ipv4)
{
	struct net___nf *net = (void *)net_address;

	if (has_ingress_rules(skb))
		return true;
	if (!bpf_core_field_exists(net->nf))
		return false;
	if (!net)
		return true;
	if (bpf_rdonly_cast) {
		net = CAST(net_address, struct net___nf);
		return ipv4 ? net->nf.hooks_ipv4[PRE_ROUTING] : net->nf.hooks_ipv6[PRE_ROUTING];
	}
	return ipv4 ? BPF_CORE_READ(net, nf.hooks_ipv4[PRE_ROUTING]) : BPF_CORE_READ(net, nf.hooks_ipv6[PRE_ROUTING]);
}

/*
 * Returns the address of the slot of a socket's port in the kernel's table of UDP sockets (udp_hashfn); zero if it cannot be read.
 * Since Linux 6.2 a network namespace can have a table of its own. A global function is verified once.
 */
__noinline __u64 port_slot(__u64 address, __u32 port)
{
	struct sock___flow *s = (void *)address;
	struct proto___flow *proto = 0;
	struct udp_table *t = 0;
	struct udp_hslot *slots = 0;
	struct net___flow *net = 0;

	if (!bpf_core_field_exists(s->__sk_common.skc_prot) || !bpf_core_field_exists(proto->h.udp_table) ||
	    !bpf_core_field_exists(t->hash) || !bpf_core_field_exists(t->mask) || !bpf_core_field_exists(slots->count) ||
	    !bpf_core_field_exists(net->hash_mix))
		return 0;
	net = BPF_CORE_READ(s, __sk_common.skc_net.net);
	t = BPF_CORE_READ(s, __sk_common.skc_prot, h.udp_table);
	if (!t && bpf_core_field_exists(net->ipv4.udp_table))
		t = BPF_CORE_READ(net, ipv4.udp_table);
	slots = t ? BPF_CORE_READ(t, hash) : 0;
	if (!slots)
		return 0;
	port = (port + BPF_CORE_READ(net, hash_mix)) & BPF_CORE_READ(t, mask);
	return (__u64)slots + (__u64)port * bpf_core_type_size(struct udp_hslot);
}

/* Whether the slot of a port has one socket: that of the flow. */
static __always_inline bool is_alone(__u64 slot)
{
	struct udp_hslot *s = (void *)slot;

	if (!slot)
		return false;
	if (bpf_rdonly_cast)
		return CAST(slot, struct udp_hslot)->count == 1;
	return BPF_CORE_READ(s, count) == 1;
}

/* Whether no other socket can be preferred while the socket stays as it is, and alone if it is one of UDP. */
static __always_inline bool is_only(struct bound *b, __u16 protocol)
{
	if (b->device)
		return false;
	if (protocol == IPPROTO_TCP)
		return b->state == TCP_ESTABLISHED;
	/* The remote address of a connected IPv6 socket is elsewhere. */
	return b->local_port && !b->reuse && (!b->remote_port || b->family == AF_INET);
}

/* Remembers the socket of a flow, and its claim. */
static __noinline void remember(struct flow_key *key, struct bpf_sock *sk, struct claimed *c)
{
	__u64 k[KEY_WORDS] = {}, address = 0;
	struct bound b = {};
	struct flow *f;

	set_words(k, key);
	f = flow_of(k, key->ipv4);
	/* The verifier forbids arithmetic with sk itself. */
	if (!f || bpf_probe_read_kernel(&address, sizeof(address), &sk))
		return;
	f->socket = 0;
	read_bound(&b, address);
	if (!b.cookie || !is_only(&b, key->protocol))
		return;
	f->port = key->protocol == IPPROTO_TCP ? 0 : port_slot(address, b.local_port);
	if (key->protocol != IPPROTO_TCP && !is_alone(f->port))
		return;
#pragma unroll
	for (int i = 0; i < KEY_WORDS; i++)
		f->key[i] = k[i];
	f->bound = b;
	f->claimed = *c;
	f->commits = commits;
	f->socket = address;
}

/* Returns the slot of the remembered socket of a flow; zero if it is not known any more. */
static __always_inline __u32 recall(struct __sk_buff *skb, struct flow_key *key)
{
	__u64 k[KEY_WORDS];
	struct flow *f;

	set_words(k, key);
	f = flow_of(k, key->ipv4);
	if (!f || !f->socket || f->commits != commits || passes || !is_key(f, k, key->ipv4))
		return 0;
	if (!is_unchanged(f, key->ipv4) || (key->protocol != IPPROTO_TCP && !is_alone(f->port)))
		return 0;
	if (!f->bound.remote_port)
		return has_rules(skb, key->ipv4) ? REASON_NETFILTER : slot_by_claim(&f->claimed);
	if (key->protocol != IPPROTO_TCP &&
	    (f->bound.remote_ip4 != key->tuple.ipv4.saddr || f->bound.remote_port != key->tuple.ipv4.sport))
		return 0; /* the connected socket receives from its peer only */
	return slot_by_claim(&f->claimed);
}

#endif
