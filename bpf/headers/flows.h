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
	__be32 remote_ip4;
	__be32 local_ip4;
	__be16 remote_port;	/* zero if it is not connected */
	__u16 local_port;	/* zero if it has left the look-up tables */
	__u16 family;
	__u8 state;
	__u8 reuse;	/* SO_REUSEADDR or SO_REUSEPORT: such a port can have other sockets, and a program that chooses */
	__u32 device;
	__u32 spare;
};

struct flow_key {
	struct bpf_sock_tuple tuple;
	__u16 protocol;
	__u16 ipv4;
};

struct flow {
	__u64 key[5];	/* a flow_key */
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
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
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

struct net_device___nf {
	void *nf_hooks_ingress;
};

struct sk_buff___device {
	struct net_device___nf *dev;
};

#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *object) __ksym __weak;

/* From Linux 6.3 the programs load the kernel's memory directly. A helper for each load takes as long as all else together. */
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

#define CAST(address, type) ((type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(type)))

/* Reads what must stay the same of a socket. */
static __always_inline void read_bound(struct bound *b, __u64 address)
{
	struct sock_common___flow *s = (void *)address;

	if (bpf_rdonly_cast) {
		s = CAST(address, struct sock_common___flow);
		b->cookie = s->skc_cookie.counter;
		b->remote_ip4 = s->skc_daddr;
		b->local_ip4 = s->skc_rcv_saddr;
		b->remote_port = s->skc_dport;
		b->local_port = s->skc_num;
		b->family = s->skc_family;
		b->state = s->skc_state;
		b->reuse = BPF_CORE_READ_BITFIELD(s, skc_reuse) || BPF_CORE_READ_BITFIELD(s, skc_reuseport);
		b->device = s->skc_bound_dev_if;
		return;
	}
	b->cookie = BPF_CORE_READ(s, skc_cookie.counter);
	b->remote_ip4 = BPF_CORE_READ(s, skc_daddr);
	b->local_ip4 = BPF_CORE_READ(s, skc_rcv_saddr);
	b->remote_port = BPF_CORE_READ(s, skc_dport);
	b->local_port = BPF_CORE_READ(s, skc_num);
	b->family = BPF_CORE_READ(s, skc_family);
	b->state = BPF_CORE_READ(s, skc_state);
	b->reuse = BPF_CORE_READ_BITFIELD_PROBED(s, skc_reuse) || BPF_CORE_READ_BITFIELD_PROBED(s, skc_reuseport);
	b->device = BPF_CORE_READ(s, skc_bound_dev_if);
}

static __always_inline bool is_same(struct bound *a, struct bound *b)
{
	return a->cookie == b->cookie && a->remote_ip4 == b->remote_ip4 && a->local_ip4 == b->local_ip4 &&
	       a->remote_port == b->remote_port && a->local_port == b->local_port && a->family == b->family &&
	       a->state == b->state && a->reuse == b->reuse && a->device == b->device;
}

/* Sets the words by which a flow is found. */
static __always_inline void set_words(__u64 *k, struct flow_key *key)
{
	__u64 *from = (void *)key;

#pragma unroll
	for (int i = 0; i < 5; i++)
		k[i] = from[i];
	if (key->protocol == IPPROTO_TCP)
		return;
	if (key->ipv4) {
		((struct flow_key *)k)->tuple.ipv4.saddr = 0;
		((struct flow_key *)k)->tuple.ipv4.sport = 0;
	} else {
		k[0] = k[1] = 0;
		((struct flow_key *)k)->tuple.ipv6.sport = 0;
	}
}

static __always_inline struct flow *flow_of(__u64 *k)
{
	__u64 h = (k[0] ^ k[1] ^ k[2] ^ k[3] ^ k[4]) * 0x9e3779b97f4a7c15ULL;
	__u32 i = h >> 40 & (FLOWS - 1);

	return bpf_map_lookup_elem(&flows, &i);
}

/* Whether the device that has received a packet has rules, which run after programs at tc. */
static __always_inline bool has_ingress_rules(struct __sk_buff *skb)
{
	struct sk_buff___device *s = 0;

	if (!bpf_core_field_exists(((struct net_device___nf *)0)->nf_hooks_ingress))
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
static __always_inline void remember(struct flow_key *key, struct bpf_sock *sk, struct claimed *c)
{
	__u64 k[5], address = 0;
	struct bound b = {};
	struct flow *f;

	set_words(k, key);
	f = flow_of(k);
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
	for (int i = 0; i < 5; i++)
		f->key[i] = k[i];
	f->bound = b;
	f->claimed = *c;
	f->commits = commits;
	f->socket = address;
}

/* Returns the slot of the remembered socket of a flow; zero if it is not known any more. */
static __always_inline __u32 recall(struct __sk_buff *skb, struct flow_key *key)
{
	struct bound b = {};
	struct flow *f;
	__u64 k[5];

	set_words(k, key);
	f = flow_of(k);
	if (!f || !f->socket || f->commits != commits || passes)
		return 0;
	if (f->key[0] != k[0] || f->key[1] != k[1] || f->key[2] != k[2] || f->key[3] != k[3] || f->key[4] != k[4])
		return 0;
	read_bound(&b, f->socket);
	if (!is_same(&b, &f->bound) || (key->protocol != IPPROTO_TCP && !is_alone(f->port)))
		return 0;
	if (!b.remote_port && has_rules(skb, key->ipv4))
		return REASON_NETFILTER;
	if (b.remote_port && key->protocol != IPPROTO_TCP &&
	    (b.remote_ip4 != key->tuple.ipv4.saddr || b.remote_port != key->tuple.ipv4.sport))
		return 0; /* the connected socket receives from its peer only */
	return slot_by_claim(&f->claimed);
}

#endif
