/*
 * IP protocol names as Debian's netbase 6.4 has them in /etc/protocols, so that
 * "ip proto NAME" means here what it means to a tcpdump beside that file.
 */
#ifndef SONDE_PROTOCOLS_H
#define SONDE_PROTOCOLS_H

static const struct {
	const char *name;
	const char *alias;
	int number;
} protocols[] = {
	{ "ip", "IP", 0 },
	{ "hopopt", "HOPOPT", 0 },
	{ "icmp", "ICMP", 1 },
	{ "igmp", "IGMP", 2 },
	{ "ggp", "GGP", 3 },
	{ "ipencap", "IP-ENCAP", 4 },
	{ "st", "ST", 5 },
	{ "tcp", "TCP", 6 },
	{ "egp", "EGP", 8 },
	{ "igp", "IGP", 9 },
	{ "pup", "PUP", 12 },
	{ "udp", "UDP", 17 },
	{ "hmp", "HMP", 20 },
	{ "xns-idp", "XNS-IDP", 22 },
	{ "rdp", "RDP", 27 },
	{ "iso-tp4", "ISO-TP4", 29 },
	{ "dccp", "DCCP", 33 },
	{ "xtp", "XTP", 36 },
	{ "ddp", "DDP", 37 },
	{ "idpr-cmtp", "IDPR-CMTP", 38 },
	{ "ipv6", "IPv6", 41 },
	{ "ipv6-route", "IPv6-Route", 43 },
	{ "ipv6-frag", "IPv6-Frag", 44 },
	{ "idrp", "IDRP", 45 },
	{ "rsvp", "RSVP", 46 },
	{ "gre", "GRE", 47 },
	{ "esp", "IPSEC-ESP", 50 },
	{ "ah", "IPSEC-AH", 51 },
	{ "skip", "SKIP", 57 },
	{ "ipv6-icmp", "IPv6-ICMP", 58 },
	{ "ipv6-nonxt", "IPv6-NoNxt", 59 },
	{ "ipv6-opts", "IPv6-Opts", 60 },
	{ "rspf", "RSPF", 73 },
	{ "rspf", "CPHB", 73 },
	{ "vmtp", "VMTP", 81 },
	{ "eigrp", "EIGRP", 88 },
	{ "ospf", "OSPFIGP", 89 },
	{ "ax.25", "AX.25", 93 },
	{ "ipip", "IPIP", 94 },
	{ "etherip", "ETHERIP", 97 },
	{ "encap", "ENCAP", 98 },
	{ "pim", "PIM", 103 },
	{ "ipcomp", "IPCOMP", 108 },
	{ "vrrp", "VRRP", 112 },
	{ "l2tp", "L2TP", 115 },
	{ "isis", "ISIS", 124 },
	{ "sctp", "SCTP", 132 },
	{ "fc", "FC", 133 },
	{ "mobility-header", "Mobility-Header", 135 },
	{ "udplite", "UDPLite", 136 },
	{ "mpls-in-ip", "MPLS-in-IP", 137 },
	{ "manet", "manet", 138 },
	{ "hip", "HIP", 139 },
	{ "shim6", "Shim6", 140 },
	{ "wesp", "WESP", 141 },
	{ "rohc", "ROHC", 142 },
	{ "ethernet", "Ethernet", 143 },
	{ "mptcp", "MPTCP", 262 },
};

#endif
