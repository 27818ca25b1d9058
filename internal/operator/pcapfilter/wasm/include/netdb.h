/*
 * The part of <netdb.h> that libpcap's name look-ups need; wasi-libc has none.
 * The functions are in shim.c and never look anything up outside the module.
 */
#ifndef SONDE_NETDB_H
#define SONDE_NETDB_H

#include <stdint.h>
#include <sys/socket.h>
#include <netinet/in.h>

#define PF_UNSPEC AF_UNSPEC

#define AI_NUMERICHOST 0x04
#define EAI_NONAME (-2)
#define EAI_SERVICE (-8)

struct addrinfo {
	int ai_flags;
	int ai_family;
	int ai_socktype;
	int ai_protocol;
	socklen_t ai_addrlen;
	struct sockaddr *ai_addr;
	char *ai_canonname;
	struct addrinfo *ai_next;
};

struct hostent {
	char *h_name;
	char **h_addr_list;
};
#define h_addr h_addr_list[0]

struct netent {
	char *n_name;
	uint32_t n_net;
};

struct protoent {
	char *p_name;
	int p_proto;
};

int getaddrinfo(const char *node, const char *service,
    const struct addrinfo *hints, struct addrinfo **res);
void freeaddrinfo(struct addrinfo *res);
struct hostent *gethostbyname(const char *name);
struct netent *getnetbyname(const char *name);
struct protoent *getprotobyname(const char *name);

#endif
