/*
 * Forks with so many mappings that it takes long, and has another thread give a descriptor to another file meanwhile. A child that has
 * the first file, although the thread was faster, writes to it. Arguments: the two files.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FD 100
#define PAGES 20000
#define ROUNDS 300
#define ENOUGH 10

static int other, begin[2], done[2];
static volatile int *swapped;	/* in memory that the children share */

static void must(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void *swap(void *unused)
{
	char c;

	while (read(begin[0], &c, 1) == 1) {
		usleep(200); /* the kernel copies the descriptors first */
		must(dup2(other, FD) == FD, "other");
		*swapped = 1;
		must(write(done[1], "", 1) == 1, "done");
	}
	return NULL;
}

/* Writes to the descriptor if it is the first file, and its process's is another one by now. */
static void child(ino_t first)
{
	int late = *swapped;
	struct stat st;

	must(!fstat(FD, &st), "fstat");
	if (!late || st.st_ino != first)
		_exit(2);
	must(write(FD, "x", 1) == 1, "write");
	_exit(0);
}

int main(int argc, char **argv)
{
	char *p = mmap(NULL, PAGES * 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), c;
	int first, status, found = 0;
	pthread_t thread;
	struct stat st;
	pid_t pid;

	swapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(argc == 3 && p != MAP_FAILED && swapped != MAP_FAILED, "mmap");
	for (long i = 0; i < PAGES; i += 2)
		must(!mprotect(p + i * 4096, 4096, PROT_READ), "mprotect");
	first = open(argv[1], O_RDWR | O_CREAT, 0600);
	other = open(argv[2], O_RDWR | O_CREAT, 0600);
	must(!fstat(first, &st) && !pipe(begin) && !pipe(done), "files");
	must(!pthread_create(&thread, NULL, swap, NULL), "thread");
	for (int i = 0; i < ROUNDS && found < ENOUGH; i++) {
		must(dup2(first, FD) == FD, "first");
		*swapped = 0;
		must(write(begin[1], "", 1) == 1, "begin");
		pid = fork();
		if (!pid)
			child(st.st_ino);
		must(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) != 1, "child");
		found += !status;
		must(read(done[0], &c, 1) == 1, "done");
	}
	must(found > 0, "a fork that takes long enough");
	return 0;
}
