/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Captures the packets of a network namespace's interfaces, docs/adr/0011-packet-engine-bpf.md.
 *
 * sonde_in   ingress of an interface: tcx/ingress from Linux 6.6, else a clsact filter. Type sched_cls, from Linux 5.12.
 * sonde_out  egress of an interface: tcx/egress or clsact.
 *
 * The source is compiled twice. With PROCESSES, packets name their processes; the headers that this includes then have further
 * programs.
 *
 * Input: the constants below, the filter in place of accepts, and the maps low and high, which name the captured interfaces.
 * Output: pcapng Enhanced Packet Blocks in the CPU's ring (ring.h).
 * Lost: packets without room in the ring, and packets sent by an interrupt while the CPU writes another one. They are counted
 * by the interface's slot in the ring (count_lost), and appear in the account as droppedRing.
 * The programs never change or drop a packet: they return NEXT, so later programs receive it.
 * Tests: agents/capture and agents/capture/tc.
 */
#include "kernel.h"
#include "skb.h"

#include <bpf/bpf_helpers.h>

#include "ring.h"

#ifdef PROCESSES
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "processes.h"
#include "sockets.h"
#include "uring_files.h"
#include "process_events.h"
#include "socket_events.h"
#include "scan.h"
#include "attribution.h"
#else
#include "no_attribution.h"
#endif

char _license[] SEC("license") = "Dual BSD/GPL";

#define NEXT (-1)	/* TCX_NEXT, TC_ACT_UNSPEC: continue as if the program were not attached */

/* Bytes before and after the packet in its block (draft-ietf-opsawg-pcapng, "Enhanced Packet Block"). */
#define BLOCK_HEAD 28
#define BLOCK_TAIL 16

#define OPTION_FLAGS (2 | 4 << 16)	/* epb_flags, of 4 bytes */

#define PACKET_LOOPBACK 5	/* include/uapi/linux/if_packet.h */

#define TAG_AT 12	/* after the two MAC addresses */
#define TAG_LEN 4

/* The most bytes of a packet to keep. */
volatile const __u32 snap_len = 0;

/* Whether the link type is Ethernet, which has room for VLAN tags. */
volatile const bool ethernet = false;

/* Nanoseconds since 1970 minus the monotonic clock. User space updates it when the clock is set. */
volatile __u64 clock_offset = 0;

/* Whether the loader has inlined the filter before the programs, so that it has accepted their packets already. */
volatile const bool inlined = false;

/* No packet is captured while this is false. */
volatile bool capturing = false;

/* A captured interface. slot is one more than the kind of its lost records; zero if the interface is not captured. */
struct interface {
	__u32 number;	/* its ID in the file */
	__u32 slot;
};

const struct interface *interface_type __attribute__((unused));

/* Interfaces by index. Low indexes, which are nearly all, need no helper call. */
#define LOW_INDEX 4096

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOW_INDEX);
	__type(key, __u32);
	__type(value, struct interface);
} low SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOST_KINDS);
	__type(key, __u32);
	__type(value, struct interface);
} high SEC(".maps");

/* Wakes the reader. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} wake SEC(".maps");

static __always_inline struct interface *captured(__u32 index)
{
	struct interface *i;

	if (index < LOW_INDEX) {
		i = bpf_map_lookup_elem(&low, &index);
		barrier_var(i); /* else the compiler merges both lookups, and neither is inlined */
	} else {
		i = bpf_map_lookup_elem(&high, &index);
	}
	return i && i->slot ? i : 0;
}

/*
 * Returns whether the filter accepts a packet. The loader replaces the body by the translated filter; the verifier checks it
 * separately, as each global function. If the filter is inlined, this is called only for bytes outside of the linear part.
 */
__noinline int accepts(struct __sk_buff *skb)
{
	int all = 1;

	asm volatile("" : "+r"(all) : "r"(skb)); /* so that the compiler does not assume a result */
	return all;
}

/* Returns epb_flags. An outgoing packet has no reception type yet. */
static __always_inline __u32 flags_of(struct __sk_buff *skb, bool out)
{
	if (out)
		return 2;
	switch (skb->pkt_type) {
	case 0: return 1 | 1 << 2; /* PACKET_HOST: inbound, unicast */
	case 1: return 1 | 3 << 2; /* PACKET_BROADCAST */
	case 2: return 1 | 2 << 2; /* PACKET_MULTICAST */
	case 3: return 1 | 4 << 2; /* PACKET_OTHERHOST: promiscuous */
	default: return 0;
	}
}

/* Copies length bytes of a packet. Before Linux 6.8 the verifier ignores `x == 0`; compare with length - 1 instead. */
static __always_inline void copy(struct __sk_buff *skb, __u32 from, void *to, __u32 length)
{
	__u64 last = (__u64)length - 1;

	barrier_var(last);
	if (last < snap_len)
		bpf_skb_load_bytes(skb, from, to, last + 1);
}

/* Writes a packet's block at p. Returns false if its process has become unknown. */
static __always_inline bool write(struct __sk_buff *skb, void *p, __u32 number, __u32 capped, __u32 whole, __u32 size, bool tagged,
				  bool out, struct description *d)
{
	__u64 length = d->length;
	bool valid = true;
	__u64 time = bpf_ktime_get_ns() + clock_offset;
	__u32 *head = p, *tail;
	__u64 padded = (capped + 3) & ~3U;

	head[0] = 6;
	head[1] = size;
	head[2] = number;
	head[3] = time >> 32;
	head[4] = time;
	head[5] = capped;
	head[6] = whole;
	p += BLOCK_HEAD;
	barrier_var(padded);
	if (padded > ((snap_len + 3) & ~3U))
		return valid;
	if (padded)
		*(__u32 *)(p + padded - 4) = 0;
	if (!tagged) {
		copy(skb, 0, p, capped);
	} else {
		bpf_skb_load_bytes(skb, 0, p, TAG_AT);
		*(__u16 *)(p + TAG_AT) = skb->vlan_proto;
		*(__u16 *)(p + TAG_AT + 2) = __builtin_bswap16(skb->vlan_tci);
		if (capped > TAG_AT + TAG_LEN)
			copy(skb, TAG_AT, p + TAG_AT + TAG_LEN, capped - TAG_AT - TAG_LEN);
	}
	tail = p + padded;
	tail[0] = OPTION_FLAGS;
	tail[1] = flags_of(skb, out);
	if (ATTRIBUTE && d->options) {
		copy_options(tail + 2, d->options, length);
		valid = is_whole(d);
		if (!valid)
			name_none(tail + 2);
		barrier_var(length);
		if (length > OPTIONS_MAX)
			return valid;
		tail = (void *)tail + length;
	}
	tail[2] = 0;
	tail[3] = size;
	return valid;
}

static __always_inline int capture(struct __sk_buff *skb, bool out)
{
	__u32 whole, capped, size, slot = 0;
	struct description d = {};
	struct interface *i;
	struct ring *ring;
	__u64 head, to;
	bool tagged;
	void *p;

	/*
	 * The kernel returns a broadcast or multicast packet that it sends to its own sockets, too. That is no packet of the interface: it has
	 * no link header, and sonde_out has the one that leaves. Packet sockets do not get it either.
	 */
	if (!out && skb->pkt_type == PACKET_LOOPBACK)
		return NEXT;
	if (!capturing || (!inlined && !accepts(skb)))
		return NEXT;
	i = captured(skb->ifindex);
	ring = ring_here();
	if (!i || !ring)
		return NEXT;
	whole = skb->len;
	tagged = ethernet && skb->vlan_present && whole >= TAG_AT;
	if (tagged)
		whole += TAG_LEN;
	capped = whole < snap_len ? whole : snap_len;
	/* A tag that is cut off is written all the same, to the slack after the ring. */
	size = BLOCK_HEAD + ((capped + 3) & ~3U) + BLOCK_TAIL;
	if (ATTRIBUTE) {
		slot = slot_of_packet(skb, ethernet, out);
		describe(&d, slot);
		if (d.length > OPTIONS_MAX)
			return NEXT;
		size += d.length;
	}
	if (ring->busy) { /* an interrupt sends while this CPU writes another packet */
		count_lost(ring, i->slot - 1);
		return NEXT;
	}
	p = reserve(ring, &head, size + OPTIONS_SPARE, i->slot - 1);
	if (!p)
		return NEXT;
	set_busy(ring, true);
	if (!write(skb, p, i->number, capped, whole, size, tagged, out, &d))
		slot = unknown_slot();
	to = next_head(head, size);
	publish(ring, head, to);
	if (ATTRIBUTE)
		count_outcome(ring, slot);
	set_busy(ring, false);
	wake_reader(ring, to, &wake);
	return NEXT;
}

SEC("tc")
int sonde_in(struct __sk_buff *skb)
{
	return capture(skb, false);
}

SEC("tc")
int sonde_out(struct __sk_buff *skb)
{
	return capture(skb, true);
}
