/*
 * wasi-libc has no setjmp, and none is needed: libpcap jumps only to report an
 * error whose text is already in the handle's errbuf. setjmp() therefore only
 * ever takes its first return, longjmp() traps, and the host reads errbuf and
 * throws the whole instance away, so that nothing has to be cleaned up here.
 */
#ifndef SONDE_SETJMP_H
#define SONDE_SETJMP_H

typedef int jmp_buf[1];

#define setjmp(env) ((void)(env), 0)
#define longjmp(env, value) __builtin_trap()

#endif
