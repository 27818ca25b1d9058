/* The one declaration that libpcap takes from this header. */
#ifndef SONDE_NETINET_ETHER_H
#define SONDE_NETINET_ETHER_H

struct ether_addr {
	unsigned char ether_addr_octet[6];
};

int ether_hostton(const char *name, struct ether_addr *addr);

#endif
