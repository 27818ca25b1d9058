/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Takes the place of attribution.h in programs that do not name processes: the compiler removes all that uses it. */
#ifndef SONDE_NO_ATTRIBUTION_H
#define SONDE_NO_ATTRIBUTION_H

#define ATTRIBUTE false
#define OPTIONS_MAX 0
#define OPTIONS_SPARE 0

struct options {
	__u32 length;
};

static __always_inline __u32 slot_of_packet(struct __sk_buff *skb, bool ethernet, bool out)
{
	return 0;
}

struct description {
	struct options *options;
	__u32 length;
};

static __always_inline void describe(struct description *d, __u32 slot)
{
}

static __always_inline bool is_whole(struct description *d)
{
	return true;
}

static __always_inline __u32 unknown_slot(void)
{
	return 0;
}

static __always_inline void copy_options(void *to, struct options *o, __u32 length)
{
}

static __always_inline void name_none(__u32 *to)
{
}

static __always_inline void count_outcome(struct ring *ring, __u32 slot)
{
}

#endif
