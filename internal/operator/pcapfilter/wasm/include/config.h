/*
 * What configure would have found out for the WebAssembly target. It follows
 * Debian's build of libpcap: IPv6 names and addresses are compiled in.
 */
#ifndef SONDE_CONFIG_H
#define SONDE_CONFIG_H

#define PACKAGE_VERSION "1.10.3"
#define INET6 1
#define HAVE_STRLCPY 1
#define HAVE_STRLCAT 1

/* ether_hostton() is the shim's: it refuses names instead of reading a file. */
#define HAVE_ETHER_HOSTTON 1
#define HAVE_DECL_ETHER_HOSTTON 1
#define NETINET_ETHER_H_DECLARES_ETHER_HOSTTON 1

/*
 * The scanner reads its input from memory only. Without its defaults for files
 * no input or output function of libc is linked in, and the module needs no import.
 */
#define YY_INPUT(buf, result, max_size) ((result) = 0)
#define YY_FATAL_ERROR(msg) __builtin_trap()
#define ECHO ((void)0)

/* The shim keeps the place of the token that was read last, for error messages. */
void sonde_token(const char *text, int length);
#define YY_USER_ACTION sonde_token(yytext, (int)yyleng);
#define yyterminate() return (sonde_token("", 0), YY_NULL)

#endif
