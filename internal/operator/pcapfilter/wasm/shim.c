/*
 * The module's whole interface: the host writes an expression to input(),
 * calls compile() and reads the struct at result(). There are no imports, so
 * the module cannot reach anything but its own memory.
 *
 * After a trap the same struct says why: errors of libpcap are in its error
 * text (see setjmp.h), refused names in its look-up fields, and no steps are
 * left after a compilation that was too long.
 */
#include <config.h>

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/ether.h>
#include <netinet/in.h>

#include "pcap-int.h"
#include "gencode.h"

#include "protocols.h"

#define EXPORT(name) __attribute__((export_name(name)))

#define MAX_EXPRESSION 4096
#define MAX_NAME 256
#define MAX_ALLOCATION (64u << 20)
#define PAGE 65536

/* Keep in step with the constants of the same meaning in sandbox.go. */
enum lookup {
	LOOKUP_NONE,
	LOOKUP_HOST,
	LOOKUP_SERVICE,
	LOOKUP_NETWORK,
	LOOKUP_ETHER,
};

static char expression[MAX_EXPRESSION + 1];
static char lookup_name[MAX_NAME + 1];
static struct pcap handle;
static struct bpf_program program;

/* Read by sandbox.go: ten little-endian 32-bit words. */
static struct {
	const char *error;
	uint32_t error_size;
	const char *lookup_name;
	uint32_t lookup_name_size;
	uint32_t lookup;
	const struct bpf_insn *instructions;
	uint32_t length;
	uint32_t steps;
	uint32_t token, token_end; /* the last token, as bytes of the expression */
} result = {
	.error = handle.errbuf,
	.error_size = sizeof(handle.errbuf),
	.lookup_name = lookup_name,
	.lookup_name_size = sizeof(lookup_name),
	.steps = 1000, /* for the calls before compile() */
};

EXPORT("input") char *
input(void)
{
	return expression;
}

EXPORT("result") void *
get_result(void)
{
	return &result;
}

/*
 * Called by the compiler's instrumentation on every edge of libpcap's control
 * flow. Counting bounds a compilation by its work, the same on every machine,
 * and costs much less than asking the host in every loop.
 */
__attribute__((no_sanitize("coverage"), always_inline)) void
__sanitizer_cov_trace_pc(void)
{
	if (result.steps == 0)
		__builtin_trap();
	result.steps--;
}

/* Called by the scanner for each token and blank, and with length 0 at the end. */
void
sonde_token(const char *text, int length)
{
	static uint32_t at;

	if (length == 0 || strchr(" \t\r\n", text[0]) == NULL) {
		result.token = at;
		result.token_end = at + (uint32_t)length;
	}
	at += (uint32_t)length;
}

/*
 * Returns 0 when result holds a program, -1 when it holds an error text.
 *
 * The handle looks like pcap-linux.c leaves one after activation on a live
 * Ethernet interface: VLAN tags are looked for in the socket buffer's
 * metadata, and there is no savefile, so that inbound, outbound and ifindex
 * are allowed.
 */
EXPORT("compile") int
compile(int linktype, int snaplen, uint32_t steps)
{
	result.steps = steps;
	handle.activated = 1;
	handle.linktype = linktype;
	handle.snapshot = snaplen;
	handle.bpf_codegen_flags = BPF_SPECIAL_VLAN_HANDLING;
	if (pcap_compile(&handle, &program, expression, 1,
	    PCAP_NETMASK_UNKNOWN) != 0)
		return -1;
	result.instructions = program.bf_insns;
	result.length = program.bf_len;
	return 0;
}

/*
 * An allocator that only takes back the block that was allocated last: an
 * instance lives for one compilation, and there are no free lists that an
 * overflow could turn into an endless loop. libpcap needs as much: it writes the
 * program of a long list hundreds of times, and frees each one before the next.
 */
struct allocation {
	size_t size;
	_Alignas(16) unsigned char data[];
};

static uintptr_t top; /* the end of the last block */

static uintptr_t
end_of(struct allocation *a)
{
	return ((uintptr_t)a->data + a->size + 15) & ~(uintptr_t)15;
}

void *
malloc(size_t size)
{
	extern unsigned char __heap_base;
	uintptr_t have = __builtin_wasm_memory_size(0) * (uintptr_t)PAGE;
	struct allocation *a;
	size_t need;

	if (top == 0)
		top = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
	if (size > MAX_ALLOCATION)
		return NULL;
	need = (sizeof(*a) + size + 15) & ~(size_t)15;
	if (need > have - top) {
		size_t pages = (need - (have - top) + PAGE - 1) / PAGE;

		if (__builtin_wasm_memory_grow(0, pages) == (size_t)-1)
			return NULL;
	}
	a = (struct allocation *)top;
	a->size = size;
	top += need;
	return a->data;
}

void
free(void *p)
{
	struct allocation *a;

	if (p == NULL)
		return;
	a = (struct allocation *)((char *)p - offsetof(struct allocation, data));
	if (end_of(a) == top)
		top = (uintptr_t)a;
}

void *
calloc(size_t count, size_t size)
{
	size_t total;
	void *p;

	if (__builtin_mul_overflow(count, size, &total))
		return NULL;
	p = malloc(total);
	if (p != NULL)
		memset(p, 0, total);
	return p;
}

void *
realloc(void *old, size_t size)
{
	void *new = malloc(size);
	size_t have;

	if (old != NULL && new != NULL) {
		have = ((struct allocation *)((char *)old - offsetof(struct allocation, data)))->size;
		memcpy(new, old, have < size ? have : size);
	}
	return new;
}

/* Ends the compilation: the name would need a look-up in DNS or in a file. */
static _Noreturn void
refuse(enum lookup kind, const char *name)
{
	result.lookup = kind;
	strlcpy(lookup_name, name, sizeof(lookup_name));
	__builtin_trap();
}

/* Addresses are allocated as one block, so that freeaddrinfo() is free(). */
struct address {
	struct addrinfo info;
	union {
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} sockaddr;
};

static struct address *
new_address(int family)
{
	struct address *a = calloc(1, sizeof(*a));

	if (a == NULL)
		__builtin_trap();
	a->info.ai_family = family;
	a->info.ai_addr = (struct sockaddr *)&a->sockaddr;
	if (family == AF_INET) {
		a->sockaddr.in.sin_family = AF_INET;
		a->info.ai_addrlen = sizeof(a->sockaddr.in);
	} else {
		a->sockaddr.in6.sin6_family = AF_INET6;
		a->info.ai_addrlen = sizeof(a->sockaddr.in6);
	}
	return a;
}

static int
numeric_service(const char *service, struct addrinfo **res)
{
	struct address *a;
	unsigned long port = 0;
	const char *p;

	for (p = service; *p >= '0' && *p <= '9'; p++) {
		port = port * 10 + (unsigned long)(*p - '0');
		if (port > 65535)
			return EAI_SERVICE;
	}
	if (p == service || *p != '\0')
		refuse(LOOKUP_SERVICE, service);
	a = new_address(AF_INET);
	a->sockaddr.in.sin_port = htons((uint16_t)port);
	*res = &a->info;
	return 0;
}

int
getaddrinfo(const char *node, const char *service,
    const struct addrinfo *hints, struct addrinfo **res)
{
	struct in_addr in;
	struct in6_addr in6;
	struct address *a;

	if (node == NULL)
		return numeric_service(service, res);
	if (hints->ai_family != AF_INET6 && inet_pton(AF_INET, node, &in) == 1) {
		a = new_address(AF_INET);
		a->sockaddr.in.sin_addr = in;
	} else if (inet_pton(AF_INET6, node, &in6) == 1) {
		a = new_address(AF_INET6);
		a->sockaddr.in6.sin6_addr = in6;
	} else {
		if (hints->ai_flags & AI_NUMERICHOST)
			return EAI_NONAME;
		refuse(LOOKUP_HOST, node);
	}
	*res = &a->info;
	return 0;
}

void
freeaddrinfo(struct addrinfo *res)
{
	free(res);
}

struct hostent *
gethostbyname(const char *name)
{
	refuse(LOOKUP_HOST, name);
}

struct netent *
getnetbyname(const char *name)
{
	refuse(LOOKUP_NETWORK, name);
}

int
ether_hostton(const char *name, struct ether_addr *addr)
{
	(void)addr;
	refuse(LOOKUP_ETHER, name);
}

struct protoent *
getprotobyname(const char *name)
{
	static struct protoent found;
	size_t i;

	for (i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++) {
		if (strcmp(name, protocols[i].name) == 0 ||
		    strcmp(name, protocols[i].alias) == 0) {
			found.p_name = (char *)protocols[i].name;
			found.p_proto = protocols[i].number;
			return &found;
		}
	}
	return NULL;
}

/* What libpcap's code generator takes from files that are not compiled in. */

int
pcap_snapshot(pcap_t *p)
{
	return p->snapshot;
}

int
pcap_datalink(pcap_t *p)
{
	return p->linktype;
}

int
pcap_strcasecmp(const char *a, const char *b)
{
	return strcasecmp(a, b);
}

const char *
pcap_datalink_val_to_description_or_dlt(int dlt)
{
	return dlt == DLT_EN10MB ? "Ethernet" : "Raw IP";
}

void
pcap_fmt_errmsg_for_errno(char *errbuf, size_t size, int errnum,
    const char *fmt, ...)
{
	(void)errnum;
	strlcpy(errbuf, fmt, size);
}

/*
 * Default files of the scanner, and the file to which printf and scanf of
 * wasi-libc complain about long doubles before they abort. None is ever used;
 * defined here, they keep those of libc, and so its imports, out.
 */
FILE *const stdin = NULL;
FILE *const stdout = NULL;
char __stderr_FILE[256];

/* Only pcap_compile_nopcap() calls these, and nothing calls that. */
pcap_t *
pcap_open_dead(int linktype, int snaplen)
{
	(void)linktype;
	(void)snaplen;
	return NULL;
}

void
pcap_close(pcap_t *p)
{
	(void)p;
}
