/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * The packets of the interfaces of one network namespace, docs/adr/0011-packet-engine-bpf.md.
 *
 * sonde_in   class sched_cls, Linux 5.12: a packet comes in by an interface.
 * sonde_out  the same, a packet goes out.
 *
 * They are attached at tcx (Linux 6.6) or clsact, the same pair to each interface of a link type. Input: the constants below,
 * the filter in place of accepts, and which interfaces are captured. Output: finished blocks of a pcapng file, in the ring
 * of the CPU (ring.h); what finds no room there is counted by the interface's slot. They change no packet and let each go
 * on to what else is attached. Tests: agents/capture.
 */
#include "kernel.h"
#include "skb.h"

#include <bpf/bpf_helpers.h>

#include "ring.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define NEXT (-1)	/* TCX_NEXT, TC_ACT_UNSPEC: as if the program were not there */

/* What is before and behind the packet in its block (draft-ietf-opsawg-pcapng, "Enhanced Packet Block"). */
#define BLOCK_HEAD 28
#define BLOCK_TAIL 16

#define OPTION_FLAGS (2 | 4 << 16)	/* epb_flags, of 4 bytes */

#define TAG_AT 12	/* behind the two MAC addresses */
#define TAG_LEN 4

/* The most bytes of a packet that are kept. */
volatile const __u32 snap_len = 0;

/* Whether the link type is Ethernet, whose packets have a place for VLAN tags. */
volatile const bool ethernet = false;

/* What makes nanoseconds since 1970 of the kernel's monotonic clock. User space keeps it: somebody may set the clock. */
volatile __u64 clock_offset = 0;

/* Whether the loader has put the filter before the programs, too, so that what they see is accepted already. */
volatile const bool inlined = false;

/* Nothing is taken before this is set, and after it is cleared. */
volatile bool taking = false;

/* A captured interface; its slot is one more than where its losses are counted, and zero of one that is not captured. */
struct interface {
	__u32 number;	/* in the file */
	__u32 slot;
};

const struct interface *interface_type __attribute__((unused));

/* Interfaces by their index. Low ones, which are nearly all, are found without a helper. */
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

/* What wakes the reader. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} wake SEC(".maps");

static __always_inline struct interface *captured(__u32 index)
{
	struct interface *i;

	if (index < LOW_INDEX) {
		i = bpf_map_lookup_elem(&low, &index);
		barrier_var(i); /* two look-ups in one instruction would be a call each */
	} else {
		i = bpf_map_lookup_elem(&high, &index);
	}
	return i && i->slot ? i : 0;
}

/*
 * Whether the filter accepts a packet. The loader puts the translated filter here; the verifier looks at it by itself, as it
 * does at each global function. In line it is asked only of packets that do not lie in one piece.
 */
__noinline int accepts(struct __sk_buff *skb)
{
	int all = 1;

	asm volatile("" : "+r"(all) : "r"(skb)); /* so that no caller counts on it */
	return all;
}

/* A block's flags. A packet that goes out has no kind of receiver yet. */
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

/* Copies so many bytes of a packet. Verifiers before Linux 6.8 learn nothing of a comparison with zero, so it is of one less. */
static __always_inline void copy(struct __sk_buff *skb, __u32 from, void *to, __u32 length)
{
	__u64 last = (__u64)length - 1;

	barrier_var(last);
	if (last < snap_len)
		bpf_skb_load_bytes(skb, from, to, last + 1);
}

/* Writes the block of a packet at p. */
static __always_inline void write(struct __sk_buff *skb, void *p, __u32 number, __u32 capped, __u32 whole, __u32 size, bool tagged,
				  bool out)
{
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
		return;
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
	tail[2] = 0;
	tail[3] = size;
}

static __always_inline int take(struct __sk_buff *skb, bool out)
{
	__u32 whole, capped, size;
	struct interface *i;
	struct ring *ring;
	__u64 head, to;
	bool tagged;
	void *p;

	if (!taking || (!inlined && !accepts(skb)))
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
	/* A tag that is cut off is written all the same, into what the ring has behind. */
	size = BLOCK_HEAD + ((capped + 3) & ~3U) + BLOCK_TAIL;
	if (ring->busy) { /* a packet within a packet, as where an interrupt sends */
		lose(ring, i->slot - 1);
		return NEXT;
	}
	p = room_in(ring, &head, size, i->slot - 1);
	if (!p)
		return NEXT;
	mark(ring, true);
	write(skb, p, i->number, capped, whole, size, tagged, out);
	to = behind(head, size);
	publish(ring, head, to);
	mark(ring, false);
	ask_reader(ring, to, &wake);
	return NEXT;
}

SEC("tc")
int sonde_in(struct __sk_buff *skb)
{
	return take(skb, false);
}

SEC("tc")
int sonde_out(struct __sk_buff *skb)
{
	return take(skb, true);
}
