/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Remembers which sockets receive the packets of recent flows. Part of packets.bpf.c.
 *
 * A look-up costs several times as much as the rest. Its result stays true as long as the socket is there with the same
 * addresses and no other one can be preferred. That holds for an established TCP connection, and for a UDP socket without
 * SO_REUSEADDR and SO_REUSEPORT: no other socket can have its port then, so that its local address alone is the key. The cookie
 * tells the socket from a later one at the same address. A scan that writes makes the programs look again.
 */
#ifndef SONDE_FLOWS_H
#define SONDE_FLOWS_H

#define FLOWS 256	/* of each CPU; a power of two */
#define TCP_ESTABLISHED 1

struct flow_key {
	struct bpf_sock_tuple tuple;
	__u16 protocol;
	__u16 ipv4;
};

struct flow {
	__u64 key[5];	/* a flow_key */
	__u64 socket;	/* the address of its struct sock; zero if none is remembered */
	__u64 cookie;
	__u64 claim;
	__u64 commits;
	__u64 bound[3];	/* a struct bound */
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
	__u16 skc_num;
	volatile unsigned char skc_state;
	int skc_bound_dev_if;
	struct {
		__s64 counter;
	} skc_cookie;
};

#pragma clang attribute pop

/* The first bytes of a struct sock. known_layout checks it. */
struct bound {
	__be32 remote_ip4;
	__be32 local_ip4;
	__u32 hash;
	__be16 remote_port;	/* zero if it is not connected */
	__u16 local_port;	/* zero if it has left the look-up tables */
	__u16 family;
	__u8 state;
	__u8 flags;
	__u32 device;
};

#define REUSE 0x1f	/* flags: SO_REUSEADDR, SO_REUSEPORT */

static __always_inline bool known_layout(void)
{
	struct sock_common___flow *s = 0;

	return !bpf_core_field_offset(s->skc_daddr) && bpf_core_field_offset(s->skc_num) == 14 &&
	       bpf_core_field_offset(s->skc_state) == 18 && bpf_core_field_offset(s->skc_bound_dev_if) == 20;
}

/* Reads what must stay the same. */
static __always_inline bool read_bound(__u64 address, __u64 *bound, __u64 *cookie)
{
	return !bpf_probe_read_kernel(bound, sizeof(struct bound), (void *)address) &&
	       !bpf_probe_read_kernel(cookie, sizeof(*cookie),
				      (void *)address + bpf_core_field_offset(((struct sock_common___flow *)0)->skc_cookie));
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

/* Whether no other socket can be preferred while the socket stays as it is. */
static __always_inline bool is_only(struct bound *b, __u16 protocol)
{
	if (b->device)
		return false;
	if (protocol == IPPROTO_TCP)
		return b->state == TCP_ESTABLISHED;
	/* The remote address of a connected IPv6 socket is elsewhere. */
	return b->local_port && !(b->flags & REUSE) && (!b->remote_port || b->family == AF_INET);
}

/* Remembers the socket of a flow, and its claim. */
static __always_inline void remember(struct flow_key *key, struct bpf_sock *sk, __u64 claim)
{
	__u64 k[5], address = 0, bound[3], cookie;
	struct flow *f;

	set_words(k, key);
	f = flow_of(k);
	/* The verifier forbids arithmetic with sk itself. */
	if (!f || !known_layout() || bpf_probe_read_kernel(&address, sizeof(address), &sk))
		return;
	f->socket = 0;
	if (!read_bound(address, bound, &cookie) || !cookie || !is_only((struct bound *)bound, key->protocol))
		return;
#pragma unroll
	for (int i = 0; i < 5; i++)
		f->key[i] = k[i];
#pragma unroll
	for (int i = 0; i < 3; i++)
		f->bound[i] = bound[i];
	f->cookie = cookie;
	f->claim = claim;
	f->commits = commits;
	f->socket = address;
}

/* Returns the slot of the remembered socket of a flow; zero if it is not known any more. */
static __always_inline __u32 recall(struct flow_key *key)
{
	__u64 k[5], bound[3], cookie;
	struct bound *b = (void *)bound;
	struct flow *f;

	set_words(k, key);
	f = flow_of(k);
	if (!f || !f->socket || f->commits != commits || passes)
		return 0;
	if (f->key[0] != k[0] || f->key[1] != k[1] || f->key[2] != k[2] || f->key[3] != k[3] || f->key[4] != k[4])
		return 0;
	if (!read_bound(f->socket, bound, &cookie) || cookie != f->cookie)
		return 0;
	if (bound[0] != f->bound[0] || bound[1] != f->bound[1] || bound[2] != f->bound[2])
		return 0;
	if (!b->remote_port && has_rules(key->ipv4))
		return REASON_NETFILTER;
	if (b->remote_port && key->protocol != IPPROTO_TCP &&
	    (b->remote_ip4 != key->tuple.ipv4.saddr || b->remote_port != key->tuple.ipv4.sport))
		return 0; /* the connected socket receives from its peer only */
	return slot_by_claim(f->claim);
}

#endif
