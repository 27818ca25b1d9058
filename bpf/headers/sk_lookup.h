/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The context of programs of type sk_lookup (include/uapi/linux/bpf.h). Its layout is part of the kernel's ABI. */
#ifndef SONDE_SK_LOOKUP_H
#define SONDE_SK_LOOKUP_H

struct bpf_sock;

struct bpf_sk_lookup {
	struct bpf_sock *sk;
	__u32 family;
	__u32 protocol;
	__u32 remote_ip4;	/* network byte order, as all addresses */
	__u32 remote_ip6[4];
	__be16 remote_port;	/* network byte order; before Linux 5.18 the first half of a __u32 */
	__u16 : 16;
	__u32 local_ip4;
	__u32 local_ip6[4];
	__u32 local_port;	/* host byte order */
	__u32 ingress_ifindex;
};

#endif
