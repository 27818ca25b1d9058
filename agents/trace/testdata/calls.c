/* Makes the calls that a trace records, as the C library does: in threads and children, with success and with errors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static volatile int sink; /* so that results are not left out */

static void on_signal(int signal)
{
	(void)signal;
}

static void files(const char *name)
{
	char text[100] = "text", other[64];
	struct iovec parts[2] = {{text, 1}, {text + 1, 2}};
	struct stat st;
	int fd, copy, dir;

	snprintf(other, sizeof(other), "%s.other", name);
	fd = open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0640);
	sink = write(fd, text, sizeof(text));
	sink = pwrite(fd, text, 10, 50);
	sink = pread(fd, text, 20, 0);
	sink = lseek(fd, 0, SEEK_SET);
	sink = read(fd, text, 1);
	sink = readv(fd, parts, 2);
	sink = writev(fd, parts, 2);
	sink = preadv(fd, parts, 2, 3);
	sink = pwritev(fd, parts, 2, 3);
	sink = fsync(fd) + fdatasync(fd) + ftruncate(fd, 77) + fchmod(fd, 0600) + fchown(fd, -1, -1);
	sink = fstat(fd, &st) + stat(name, &st) + lstat(name, &st) + access(name, R_OK);
	copy = dup(fd);
	sink = dup2(fd, copy) + dup3(fd, copy, O_CLOEXEC) + fcntl(copy, F_GETFD);
	sink = fcntl(copy, F_DUPFD_CLOEXEC, 50);
	close(sink);
	close(copy);
	copy = open(other, O_CREAT | O_WRONLY, 0600);
	sink = sendfile(copy, fd, NULL, 10);
	sink = copy_file_range(fd, NULL, copy, NULL, 10, 0);
	close(copy);
	close(fd);
	sink = close(fd); /* once too often */
	sink = rename(other, name) + link(name, other) + unlink(other) + symlink(name, other);
	sink = readlink(other, text, sizeof(text));
	sink = unlink(other) + chmod(name, 0644) + truncate(name, 5) + unlink(name) + unlink(name);
	snprintf(other, sizeof(other), "%s.dir", name);
	sink = mkdir(other, 0700);
	dir = open(other, O_DIRECTORY);
	sink = faccessat(dir, "nothing", R_OK, 0) + syscall(SYS_getdents64, dir, text, sizeof(text));
	close(dir);
	sink = rmdir(other);
}

static void memory(void)
{
	const size_t size = 16 << 12;
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(at, 1, size);
	sink = madvise(at, size, MADV_NOHUGEPAGE) + mlock(at, 4096) + mlock2(at, 4096, 0) + munlock(at, 4096);
	sink = mprotect(at, size, PROT_READ) + msync(at, size, MS_ASYNC);
	at = mremap(at, size, 2 * size, MREMAP_MAYMOVE);
	munmap(at, 2 * size);
	sink = mmap(NULL, size, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED; /* of no file */
	sink = madvise((void *)1, 1, -1) + munmap((void *)1, 1);
}

static void *thread(void *name)
{
	files(name);
	memory();
	return NULL;
}

static void signals(void)
{
	union sigval value = {.sival_int = 7};
	siginfo_t info = {.si_code = SI_QUEUE};
	pid_t self = getpid(), child;
	int fd, status, ends[2];
	char word;

	signal(SIGUSR1, on_signal);
	sink = kill(self, SIGUSR1) + kill(self, 0) + kill(self, 1000) + kill(0x7ffffff0, 0);
	sink = raise(SIGUSR1) + sigqueue(self, SIGUSR1, value);
	sink = syscall(SYS_tkill, self, SIGUSR1) + syscall(SYS_tgkill, self, self, SIGUSR1);
	sink = syscall(SYS_rt_tgsigqueueinfo, self, self, SIGUSR1, &info);
	fd = syscall(SYS_pidfd_open, self, 0);
	sink = syscall(SYS_pidfd_send_signal, fd, SIGUSR1, NULL, 0);
	close(fd);
	if (pipe(ends))
		exit(1);
	child = fork();
	if (!child) {
		files("child");
		memory();
		sink = write(ends[1], "x", 1);
		for (;;)
			pause();
	}
	sink = read(ends[0], &word, 1);
	sink = kill(child, SIGTERM);
	waitpid(child, &status, 0);
}

static void programs(void)
{
	char *argv[] = {"true", "a", NULL}, *none[] = {"none", NULL};
	pid_t child;
	int status;

	if (!posix_spawn(&child, "/bin/true", NULL, NULL, argv, environ))
		waitpid(child, &status, 0);
	sink = posix_spawn(&child, "/nowhere/to/be found", NULL, NULL, none, environ);
	child = vfork();
	if (!child)
		_exit(3);
	waitpid(child, &status, 0);
#ifdef SYS_fork
	child = syscall(SYS_fork);
	if (!child)
		_exit(3);
	waitpid(child, &status, 0);
#endif
	/* The oldest way to make a child: a signal at its end, and no more. */
	child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!child)
		_exit(3);
	waitpid(child, &status, 0);
	child = syscall(SYS_clone3, NULL, 0);
}

int main(void)
{
	char names[3][16];
	pthread_t threads[3];
	const char *dir = getenv("SONDE_TRACE_WORKLOAD_DIR");

	if (!dir || chdir(dir))
		return 1;
	for (int i = 0; i < 3; i++) {
		snprintf(names[i], sizeof(names[i]), "thread-%d", i);
		if (pthread_create(&threads[i], NULL, thread, names[i]))
			return 1;
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	files("main");
	memory();
	sink = *(char *)sbrk(1 << 16);
	signals();
	programs();
	sink = syscall(SYS_close_range, 40, 50, 0);
	return 7;
}
