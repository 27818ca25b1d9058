/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * A ring of bytes for each CPU, in an array map that user space maps (package agents/node/ring reads it). The CPU is its only
 * writer. If a program may interrupt another one that writes, it must check busy before it writes.
 *
 * Records follow each other and are never split: one that begins in the ring may end in the slack after it, and the next is at
 * the front. A record without room is not written; lost counts it, and so does the counter of its kind. The reader polls; a
 * program may wake it earlier (wake_reader).
 *
 * The loader sets the value's size: RING_HEAD, the ring, the slack. The ring's size is a power of two.
 */
#ifndef SONDE_RING_H
#define SONDE_RING_H

#define RING_HEAD 8192	/* pages before the ring's data, mapped writable for the reader's position */
#define LOST_AT 4096	/* in them: counters of lost records, one for each kind */
#define LOST_KINDS 512	/* a power of two */

/* The bytes of a ring without its head, less one. */
volatile const __u64 ring_mask = 0;

struct ring {
	__u64 head;	/* the writer's position: bytes written since the start */
	__u64 lost;
	__u64 counter;	/* for the program's use */
	__u64 busy;	/* set while a record is written, from before its time is read until it is published */
	__u64 spare[4];
	__u64 tail;	/* the reader's position: bytes freed since the start */
	__u64 asked;	/* set by a program that has woken the reader, cleared by a reader before it sleeps */
	__u64 threshold;	/* set by the reader: programs wake it for more bytes than this */
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

/* Counts a record without room, by its kind. */
static __always_inline void count_lost(struct ring *ring, __u32 kind)
{
	__u64 *by_kind = (void *)ring + LOST_AT;

	barrier_var(kind); /* keeps the bounds check where the verifier needs it */
	__sync_fetch_and_add(&ring->lost, 1);
	__sync_fetch_and_add(&by_kind[kind & (LOST_KINDS - 1)], 1);
}

/* Returns where to write a record of at most need bytes, at the ring's head; zero if there is no room, which it counts. */
static __always_inline void *reserve(struct ring *ring, __u64 *head, __u64 need, __u32 kind)
{
	*head = ring->head;
	if (*head + need - *(volatile __u64 *)&ring->tail > ring_mask + 1) {
		count_lost(ring, kind);
		return 0;
	}
	return (void *)ring + RING_HEAD + (*head & ring_mask);
}

/*
 * Call it around everything that a record needs, including reading its time and publish: a reader that finds busy clear knows
 * all records of the CPU that are older than its check (ring.Horizon in Go). No other program may write in between.
 */
static __always_inline void set_busy(struct ring *ring, bool busy)
{
	*(volatile __u64 *)&ring->busy = busy;
	barrier();
}

/* Returns where the record begins that follows one of size bytes at head. */
static __always_inline __u64 next_head(__u64 head, __u32 size)
{
	if ((head & ring_mask) + size > ring_mask) /* it begins at the front */
		return (head & ~ring_mask) + ring_mask + 1;
	return head + size;
}

/* Makes the record visible to the reader on another CPU before the ring's head. */
static __always_inline void publish(struct ring *ring, __u64 from, __u64 to)
{
#if defined(__TARGET_ARCH_x86)
	barrier();
	*(volatile __u64 *)&ring->head = to; /* x86 does not reorder stores */
#else
	/* Because the result is used, the compiler emits an atomic operation that is a full barrier. */
	*(volatile __u64 *)&ring->spare[0] = __sync_fetch_and_add(&ring->head, to - from);
#endif
}

/*
 * Wakes a sleeping reader by a BPF ring buffer if the ring holds more than threshold bytes, once in each of its sleeps. It is
 * for programs whose ring a burst fills before the next poll, and for a reader that sleeps long in quiet. Call it after
 * publish.
 */
static __always_inline void wake_reader(struct ring *ring, __u64 to, void *wake)
{
	__u64 one = 1;

	if (to - *(volatile __u64 *)&ring->tail <= *(volatile __u64 *)&ring->threshold || ring->asked)
		return;
	ring->asked = 1;
	bpf_ringbuf_output(wake, &one, sizeof(one), BPF_RB_FORCE_WAKEUP);
}

#endif
