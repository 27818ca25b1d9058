/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Steers new TCP connections of a Pod's ports to a carrier's listeners.
 *
 * sonde_steer  sk_lookup of a network namespace, from Linux 5.9. It runs when the kernel looks for the listener of a SYN.
 *
 * Input: the maps ports, sockets and own.
 * Output: the connection's listener. Connections that are established already never come here.
 * Lost: nothing. A connection to a steered port that finds no listener in sockets, or that another program has assigned,
 * goes where it would go without this program. missed counts these.
 * Test: TestSteer in agents/opener.
 */
#include "kernel.h"
#include "sk_lookup.h"

#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual BSD/GPL";

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define SK_PASS 1

#define MAX_PORTS 1024
#define MAX_OWN 512	/* twice the carrier's dials at one time */

/* Slots of sockets. */
#define LISTENER_IPV4 0
#define LISTENER_IPV6 1

/* Connections to steered ports that found no listener of a carrier. */
volatile __u64 missed = 0;

/* Steered ports in host byte order. The value has no meaning. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u16);
	__type(value, __u8);
} ports SEC(".maps");

/* The carrier's listeners. The kernel removes a listener that is closed. */
struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} sockets SEC(".maps");

/* Where a connection comes from. An IPv4 address is mapped to IPv6 (RFC 4291, section 2.5.5.2). */
struct source {
	__u32 address[4];	/* network byte order */
	__be16 port;
	__u16 zero;
};

/* Sources of connections that the carrier makes to the app. Steering them would bring them back to the carrier. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OWN);
	__type(key, struct source);
	__type(value, __u8);
} own SEC(".maps");

/*
 * Reads all fields first: the verifier allows only constant offsets from ctx, and the compiler would choose between two
 * addresses and load once.
 */
#define FIELD(ctx, field) (*(volatile __u32 *)&(ctx)->field)

static __always_inline void set_source(struct source *s, struct bpf_sk_lookup *ctx)
{
	__u32 ip4 = FIELD(ctx, remote_ip4);
	__u32 ip6[4] = {
		FIELD(ctx, remote_ip6[0]), FIELD(ctx, remote_ip6[1]), FIELD(ctx, remote_ip6[2]), FIELD(ctx, remote_ip6[3]),
	};
	int is_ip4 = ctx->family == AF_INET;

	s->port = ctx->remote_port;
	s->address[0] = is_ip4 ? 0 : ip6[0];
	s->address[1] = is_ip4 ? 0 : ip6[1];
	s->address[2] = is_ip4 ? __builtin_bswap32(0xffff) : ip6[2];
	s->address[3] = is_ip4 ? ip4 : ip6[3];
}

SEC("sk_lookup")
int sonde_steer(struct bpf_sk_lookup *ctx)
{
	__u16 port = ctx->local_port;
	struct source source = {};
	struct bpf_sock *listener;
	__u32 slot;
	long err;

	if (ctx->protocol != IPPROTO_TCP || !bpf_map_lookup_elem(&ports, &port))
		return SK_PASS;
	set_source(&source, ctx);
	if (bpf_map_lookup_elem(&own, &source))
		return SK_PASS;
	slot = ctx->family == AF_INET6 ? LISTENER_IPV6 : LISTENER_IPV4;
	listener = bpf_map_lookup_elem(&sockets, &slot);
	if (!listener) {
		__sync_fetch_and_add(&missed, 1);
		return SK_PASS;
	}
	err = bpf_sk_assign(ctx, listener, 0);
	bpf_sk_release(listener);
	if (err)
		__sync_fetch_and_add(&missed, 1);
	return SK_PASS;
}
