/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Whether an address is one of the Pod's interfaces. Part of packets.bpf.c, for captures that name processes.
 *
 * A socket for all addresses is found for any packet, but the kernel gives it only those for its own addresses. The programs look
 * for the address at the interface that has received the packet, and then at all that are up. Lost: addresses of local routes (`ip
 * route add local`), except for those of an interface like loopback, and addresses beyond MAX_ADDRESSES; their packets name no
 * process.
 */
#ifndef SONDE_ADDRESSES_H
#define SONDE_ADDRESSES_H

#define MAX_ADDRESSES 256	/* addresses and interfaces that the search looks at, in all */
#define IFF_UP 1
#define IFF_LOOPBACK 8
#define IFA_F_OPTIMISTIC 0x04
#define IFA_F_TENTATIVE 0x40

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

struct in_ifaddr {
	struct in_ifaddr *ifa_next;
	__be32 ifa_local;
	__be32 ifa_address;
	__be32 ifa_mask;
};

struct in_device {
	struct in_ifaddr *ifa_list;
};

struct inet6_ifaddr {
	struct in6_addr addr;
	__u32 flags;
	struct list_head if_list;
};

struct inet6_dev {
	struct list_head addr_list;
};

struct net_device___address {
	unsigned int flags;
	struct list_head dev_list;
	struct in_device *ip_ptr;
	struct inet6_dev *ip6_ptr;
};

struct sk_buff___address {
	struct net_device___address *dev;
};

struct net___devices {
	struct list_head dev_base_head;
};

#pragma clang attribute pop

struct address_search {
	__u64 address[2];
	__u64 entry;	/* of the interface, the next one; zero at the end */
	__u64 end;	/* of an interface's IPv6 addresses */
	struct list_head *devices, *next;	/* interfaces of the Pod, and the next one */
	bool ipv4;
	bool loopback;
	bool found;
};

static __always_inline struct list_head *next_of(struct list_head *l)
{
	return BPF_CORE_READ(l, next);
}

/* Begins with the addresses of an interface. */
static __always_inline void begin_device(struct address_search *s, struct net_device___address *dev)
{
	struct in_device *v4;
	struct inet6_dev *v6;

	s->loopback = BPF_CORE_READ(dev, flags) & IFF_LOOPBACK;
	s->entry = s->end = 0;
	if (s->ipv4) {
		v4 = BPF_CORE_READ(dev, ip_ptr);
		s->entry = v4 ? (__u64)BPF_CORE_READ(v4, ifa_list) : 0;
		return;
	}
	v6 = BPF_CORE_READ(dev, ip6_ptr);
	if (!v6)
		return;
	s->end = (__u64)v6 + bpf_core_field_offset(struct inet6_dev, addr_list);
	s->entry = (__u64)next_of((void *)s->end);
}

/* Continues with the next interface. Returns false if there is none. */
static __always_inline bool next_device(struct address_search *s)
{
	struct net_device___address *dev;

	if (!s->next || s->next == s->devices)
		return false;
	dev = (void *)s->next - bpf_core_field_offset(struct net_device___address, dev_list);
	s->next = next_of(s->next);
	s->entry = s->end = 0;
	if (BPF_CORE_READ(dev, flags) & IFF_UP)
		begin_device(s, dev);
	return true;
}

/* Compares an IPv4 address. At loopback its whole network is local. */
static __always_inline bool has_ipv4(struct address_search *s)
{
	struct in_ifaddr *a = (void *)s->entry;
	__be32 address = s->address[0];

	s->entry = (__u64)BPF_CORE_READ(a, ifa_next);
	if (BPF_CORE_READ(a, ifa_local) == address)
		return true;
	return s->loopback && !((BPF_CORE_READ(a, ifa_address) ^ address) & BPF_CORE_READ(a, ifa_mask));
}

/* Compares an IPv6 address, which is not valid yet while the kernel looks for duplicates of it. */
static __always_inline bool has_ipv6(struct address_search *s)
{
	struct inet6_ifaddr *a = (void *)s->entry - bpf_core_field_offset(struct inet6_ifaddr, if_list);
	__u64 address[2] = {};

	s->entry = (__u64)next_of((void *)s->entry);
	bpf_probe_read_kernel(address, sizeof(address), (void *)a + bpf_core_field_offset(struct inet6_ifaddr, addr));
	return address[0] == s->address[0] && address[1] == s->address[1] &&
	       (BPF_CORE_READ(a, flags) & (IFA_F_TENTATIVE | IFA_F_OPTIMISTIC)) != IFA_F_TENTATIVE;
}

static long search_address(__u32 i, struct address_search *s)
{
	if (!s->entry || s->entry == s->end)
		return !next_device(s);
	s->found = s->ipv4 ? has_ipv4(s) : has_ipv6(s);
	return s->found;
}

/* Whether an address, in two halves, is one of the Pod. The search begins at an interface. A global function is verified once. */
__noinline int has_address(__u64 device, __u64 first, __u64 second, __u32 ipv4)
{
	struct net___devices *net = (void *)net_address;
	struct address_search s = { .address = { first, second }, .ipv4 = ipv4 };

	if (!device)
		return 0;
	if (net) {
		s.devices = (void *)net + bpf_core_field_offset(struct net___devices, dev_base_head);
		s.next = next_of(s.devices);
	}
	begin_device(&s, (void *)device);
	bpf_loop(MAX_ADDRESSES, search_address, &s, 0);
	return s.found;
}

/* Whether a packet is for an address of the Pod. */
static __always_inline bool is_own(struct __sk_buff *skb, struct flow_key *key)
{
	struct sk_buff___address *b = 0;
	__u64 address[2] = {};

	if (key->ipv4)
		address[0] = key->tuple.ipv4.daddr;
	else
		__builtin_memcpy(address, key->tuple.ipv6.daddr, sizeof(address));
	bpf_probe_read_kernel(&b, sizeof(b), &skb);
	return has_address((__u64)BPF_CORE_READ(b, dev), address[0], address[1], key->ipv4);
}

#endif
