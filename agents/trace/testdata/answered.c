/*
 * Has seccomp answer chdir, and starts itself again, so that its first call then is one that is answered: chdir to /etc, and the file
 * shop of the folder that it has not gone to. Without a C library, which would make other calls before.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define AT_FDCWD (-100)

static long call(long number, long a, long b, long c, long d, long e)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e;
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
	return result;
#else
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d,
		x4 __asm__("x4") = e;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
#endif
}

static struct sock_filter filter[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),	/* the number of the call */
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_chdir, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),	/* zero: a success */
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static char folder[] = "/etc";

/* The stack as the kernel leaves it: the number of arguments, and these. */
__attribute__((used)) void run(long *stack)
{
	struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };
	char *again[] = { (char *)stack[1], "again", 0 };

	if (stack[0] > 1) {
		*(volatile char *)folder = '/';	/* so that its page is there: the kernel does not read it */
		call(SYS_chdir, (long)folder, 0, 0, 0, 0);
		call(SYS_openat, AT_FDCWD, (long)"shop", 0, 0, 0);
		call(SYS_exit_group, 0, 0, 0, 0, 0);
	}
	if (!call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !call(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0, 0))
		call(SYS_execve, stack[1], (long)again, 0, 0, 0);
	call(SYS_exit_group, 1, 0, 0, 0, 0);
}

#if defined(__x86_64__)
__asm__(".text\n.globl _start\n_start:\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall run\n");
#else
__asm__(".text\n.globl _start\n_start:\n\tmov x0, sp\n\tbl run\n");
#endif
