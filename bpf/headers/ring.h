/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * A ring of bytes for each CPU, in an array map that user space maps (package agents/node/ring reads it). The CPU is its only
 * writer: a program that may be interrupted by another one that writes must see by busy that it is that one.
 * Records lie one behind the other, and none is divided: one that begins in the ring may end in the slack behind it, and
 * the next is at the front. What finds no room is not written, and counted. The reader looks by itself; a program may ask it to
 * come earlier (ask_reader).
 *
 * The loader sets the value's size: RING_HEAD, the ring, the slack. The ring's size is a power of two.
 */
#ifndef SONDE_RING_H
#define SONDE_RING_H

#define RING_HEAD 8192	/* pages before the ring's data, mapped writable for the reader's place */
#define LOST_AT 4096	/* in them: counters of what was lost, one for each kind */
#define LOST_KINDS 512	/* a power of two */

/* The bytes of a ring without its head, less one. */
volatile const __u64 ring_mask = 0;

struct ring {
	__u64 head;	/* the kernel's: all that was ever written */
	__u64 lost;
	__u64 own;	/* the program's own counter */
	__u64 busy;	/* set while a record is written, from before its time is taken until it is published */
	__u64 spare[4];
	__u64 tail;	/* the reader's: all that it has done with */
	__u64 asked;	/* set by a program that has asked the reader to come, cleared by a reader that is about to sleep */
	__u64 patience;	/* the reader's: of how many bytes, and less, it need not be asked */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, RING_HEAD);
} rings SEC(".maps");

static __always_inline struct ring *ring_here(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&rings, &cpu);
}

/* Counts what found no room, by its kind. */
static __always_inline void lose(struct ring *ring, __u32 kind)
{
	__u64 *by_kind = (void *)ring + LOST_AT;

	barrier_var(kind); /* so that the bounds stand where the verifier sees them */
	__sync_fetch_and_add(&ring->lost, 1);
	__sync_fetch_and_add(&by_kind[kind & (LOST_KINDS - 1)], 1);
}

/* Where a record of at most need bytes is to be written, at the ring's head; zero where there is no room, which is counted. */
static __always_inline void *room_in(struct ring *ring, __u64 *head, __u64 need, __u32 kind)
{
	*head = ring->head;
	if (*head + need - *(volatile __u64 *)&ring->tail > ring_mask + 1) {
		lose(ring, kind);
		return 0;
	}
	return (void *)ring + RING_HEAD + (*head & ring_mask);
}

/*
 * Around all that is done for a record, its time and publish too: a reader that sees no mark knows all records of the CPU that
 * are older than its look (cpuring.Horizon). Nothing may write between both.
 */
static __always_inline void mark(struct ring *ring, bool busy)
{
	*(volatile __u64 *)&ring->busy = busy;
	barrier();
}

/* Where the record begins that follows one of size bytes at head. */
static __always_inline __u64 behind(__u64 head, __u32 size)
{
	if ((head & ring_mask) + size > ring_mask) /* it begins at the front */
		return (head & ~ring_mask) + ring_mask + 1;
	return head + size;
}

/* Makes what was written before visible to the reader on another CPU, before the ring's head is. */
static __always_inline void publish(struct ring *ring, __u64 from, __u64 to)
{
#if defined(__TARGET_ARCH_x86)
	barrier();
	*(volatile __u64 *)&ring->head = to; /* stores are seen in order */
#else
	/* With its result used this is an atomic operation that is ordered on both sides; without, it is not. */
	*(volatile __u64 *)&ring->spare[0] = __sync_fetch_and_add(&ring->head, to - from);
#endif
}

/*
 * Wakes a reader that sleeps, by a BPF ring buffer, where more has come than it has patience with; once in each of its sleeps. It
 * is for programs whose ring a burst fills before the reader looks by itself, and for a reader that sleeps for long where
 * nothing comes. Behind publish.
 */
static __always_inline void ask_reader(struct ring *ring, __u64 to, void *wake)
{
	__u64 one = 1;

	if (to - *(volatile __u64 *)&ring->tail <= *(volatile __u64 *)&ring->patience || ring->asked)
		return;
	ring->asked = 1;
	bpf_ringbuf_output(wake, &one, sizeof(one), BPF_RB_FORCE_WAKEUP);
}

#endif
