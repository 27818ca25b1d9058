/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The context of programs of type sched_cls (include/uapi/linux/bpf.h). Its layout is part of the kernel's ABI. */
#ifndef SONDE_SKB_H
#define SONDE_SKB_H

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
};

#endif
