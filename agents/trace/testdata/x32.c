/*
 * A 64-bit program that makes ten calls of x32, and ten more that a seccomp filter refuses with EPERM. It says how many have been
 * answered. It also returns from a signal, after which the kernel reports a call of number -1.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define X32_BIT 0x40000000

static void on_signal(int number)
{
	(void)number;
}

static int ten_calls(void)
{
	int answered = 0;

	for (int i = 0; i < 10; i++)
		answered += syscall(X32_BIT | SYS_getpid) != -1 || errno != ENOSYS;
	return answered;
}

int main(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, X32_BIT, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};
	int kernel, refused;

	signal(SIGUSR1, on_signal);
	raise(SIGUSR1);
	kernel = ten_calls();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		return 1;
	refused = ten_calls();
	printf("%d and %d calls\n", kernel, refused);
	return 0;
}
