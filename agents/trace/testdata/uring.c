/*
 * Uses files and sockets by an io_uring only: it opens, writes, reads, sends, receives and closes. Usage: uring VARIANT FILE.
 * It ends with status 0 if each operation had its expected result.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENTRIES 4
#define MANY 100000
#define TEXT "by a ring"
#define LENGTH 9

static const char *path;

struct ring {
	int fd;
	unsigned flags;
	_Atomic unsigned *sq_tail, *sq_flags, *cq_head, *cq_tail;
	unsigned *sq_array, sq_mask, cq_mask;
	struct io_uring_sqe *entries;
	struct io_uring_cqe *results;
	unsigned stride, queued;
};

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void *mapped(int fd, size_t size, off_t at)
{
	void *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, at);

	must(p != MAP_FAILED, "mmap");
	return p;
}

static void map_ring(struct ring *r, const struct io_uring_params *p)
{
	char *sq = mapped(r->fd, p->sq_off.array + p->sq_entries * 4, IORING_OFF_SQ_RING);
	char *cq = mapped(r->fd, p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);

	r->flags = p->flags;
	r->sq_tail = (void *)(sq + p->sq_off.tail);
	r->sq_flags = (void *)(sq + p->sq_off.flags);
	r->sq_array = (void *)(sq + p->sq_off.array);
	r->sq_mask = p->sq_entries - 1;
	r->cq_head = (void *)(cq + p->cq_off.head);
	r->cq_tail = (void *)(cq + p->cq_off.tail);
	r->cq_mask = p->cq_entries - 1;
	r->results = (void *)(cq + p->cq_off.cqes);
	r->stride = p->flags & IORING_SETUP_SQE128 ? 2 : 1;
	r->entries = mapped(r->fd, p->sq_entries * r->stride * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
	r->queued = 0;
}

static struct io_uring_params setup(struct ring *r, unsigned flags)
{
	struct io_uring_params p = {.flags = flags, .sq_thread_idle = 1000};

	r->fd = syscall(SYS_io_uring_setup, ENTRIES, &p);
	must(r->fd >= 0, "io_uring_setup");
	map_ring(r, &p);
	return p;
}

static struct io_uring_sqe *queue(struct ring *r, int opcode, int fd, const void *addr, unsigned len, unsigned long data)
{
	unsigned tail = atomic_load(r->sq_tail) + r->queued++, at = tail & r->sq_mask;
	struct io_uring_sqe *e = &r->entries[at * r->stride];

	memset(e, 0, sizeof(*e));
	e->opcode = opcode;
	e->fd = fd;
	e->addr = (unsigned long)addr;
	e->len = len;
	e->user_data = data;
	r->sq_array[at] = at;
	return e;
}

static void enter(struct ring *r, unsigned submit, unsigned wait)
{
	unsigned flags = wait ? IORING_ENTER_GETEVENTS : 0;

	if ((r->flags & IORING_SETUP_SQPOLL) && (atomic_load(r->sq_flags) & IORING_SQ_NEED_WAKEUP))
		flags |= IORING_ENTER_SQ_WAKEUP;
	while (syscall(SYS_io_uring_enter, r->fd, submit, wait, flags, 0, 0) < 0)
		must(errno == EINTR, "io_uring_enter");
}

/* Submits what is queued and waits for so many results. */
static void submit(struct ring *r, unsigned wait)
{
	unsigned n = r->queued;

	r->queued = 0;
	atomic_store(r->sq_tail, atomic_load(r->sq_tail) + n);
	enter(r, n, wait);
	while (atomic_load(r->cq_tail) - atomic_load(r->cq_head) < wait)
		enter(r, 0, wait);
}

/* Takes the result of an operation. */
static int result(struct ring *r, unsigned long data)
{
	unsigned head = atomic_load(r->cq_head);
	struct io_uring_cqe *c;

	for (unsigned at = head; at != atomic_load(r->cq_tail); at++) {
		c = &r->results[at & r->cq_mask];
		if (c->user_data != data)
			continue;
		int res = c->res;
		*c = r->results[head & r->cq_mask];
		atomic_store(r->cq_head, head + 1);
		return res;
	}
	fprintf(stderr, "no result of %#lx\n", data);
	exit(1);
}

static void expect(struct ring *r, unsigned long data, int want)
{
	int res = result(r, data);

	if (res == want)
		return;
	fprintf(stderr, "result of %#lx is %d, want %d\n", data, res, want);
	exit(1);
}

static int one(struct ring *r, struct io_uring_sqe *e, unsigned char flags)
{
	e->flags |= flags;
	submit(r, 1);
	return result(r, e->user_data);
}

/* Both ends of a TCP connection. */
static void connect_pair(int fd[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	must(!bind(listener, (void *)&at, n) && !listen(listener, 1) && !getsockname(listener, (void *)&at, &n), "listen");
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	must(!connect(fd[0], (void *)&at, n), "connect");
	fd[1] = accept(listener, 0, 0);
	must(fd[1] >= 0, "accept");
	close(listener);
}

/* Each kind of operation, one after the other. */
static void use(struct ring *r, unsigned char flags)
{
	char text[LENGTH] = TEXT, back[2 * LENGTH];
	struct io_uring_sqe *e;
	int fd, sockets[2];

	connect_pair(sockets);
	e = queue(r, IORING_OP_OPENAT, AT_FDCWD, path, 0600, 0x100);
	e->open_flags = O_CREAT | O_RDWR | O_CLOEXEC;
	fd = one(r, e, flags);
	must(fd >= 0, "openat");
	must(one(r, queue(r, IORING_OP_WRITE, fd, text, LENGTH, 0x101), flags) == LENGTH, "write");
	must(one(r, queue(r, IORING_OP_READ, fd, back, sizeof(back), 0x102), flags) == LENGTH, "read");
	must(!memcmp(text, back, LENGTH), "text");
	must(one(r, queue(r, IORING_OP_SEND, sockets[0], text, LENGTH, 0x103), flags) == LENGTH, "send");
	must(one(r, queue(r, IORING_OP_RECV, sockets[1], back, sizeof(back), 0x104), flags) == LENGTH, "recv");
	must(one(r, queue(r, IORING_OP_CLOSE, fd, 0, 0, 0x105), flags) == 0, "close");
	e = queue(r, IORING_OP_OPENAT, AT_FDCWD, "/nowhere/to/be found", 0, 0x106);
	must(one(r, e, flags) == -ENOENT, "openat of a missing file");
	must(one(r, queue(r, IORING_OP_OPENAT, AT_FDCWD, (void *)8, 0, 0x107), flags) == -EFAULT, "openat of an invalid address");
	close(sockets[0]);
	close(sockets[1]);
}

/* A chain that opens a file into the ring's own files, and writes to it, reads from it and closes it there. */
static void linked(struct ring *r)
{
	int none[2] = {-1, -1};
	char text[LENGTH] = TEXT;
	struct io_uring_sqe *e;

	must(!syscall(SYS_io_uring_register, r->fd, IORING_REGISTER_FILES, none, 2), "register files");
	e = queue(r, IORING_OP_OPENAT, AT_FDCWD, path, 0600, 0x100);
	e->open_flags = O_CREAT | O_RDWR;
	e->file_index = 2;
	e->flags = IOSQE_IO_LINK;
	queue(r, IORING_OP_WRITE, 1, text, LENGTH, 0x101)->flags = IOSQE_IO_LINK | IOSQE_FIXED_FILE;
	queue(r, IORING_OP_READ, 1, text, LENGTH, 0x102)->flags = IOSQE_IO_LINK | IOSQE_FIXED_FILE;
	queue(r, IORING_OP_CLOSE, 0, 0, 0, 0x103)->file_index = 2;
	submit(r, 4);
	expect(r, 0x100, 0);
	expect(r, 0x101, LENGTH);
	expect(r, 0x102, LENGTH);
	expect(r, 0x103, 0);
	/* The first one fails, and the others are cancelled. */
	queue(r, IORING_OP_OPENAT, AT_FDCWD, "/nowhere/to/be found", 0, 0x104)->flags = IOSQE_IO_LINK;
	queue(r, IORING_OP_WRITE, 1, text, LENGTH, 0x105)->flags = IOSQE_FIXED_FILE;
	submit(r, 2);
	expect(r, 0x104, -ENOENT);
	expect(r, 0x105, -ECANCELED);
}

/* Successes without results. */
static void silent(struct ring *r)
{
	struct io_uring_sqe *e = queue(r, IORING_OP_OPENAT, AT_FDCWD, path, 0600, 0x100);

	e->open_flags = O_CREAT | O_RDWR;
	e->flags = IOSQE_CQE_SKIP_SUCCESS;
	queue(r, IORING_OP_OPENAT, AT_FDCWD, "/nowhere/to/be found", 0, 0x101)->flags = IOSQE_CQE_SKIP_SUCCESS;
	submit(r, 1);
	expect(r, 0x101, -ENOENT);
}

/* More results than the ring has room for. */
static void overflow(struct ring *r)
{
	for (int i = 0; i < 6; i++) {
		for (int k = 0; k < ENTRIES; k++)
			queue(r, IORING_OP_OPENAT, AT_FDCWD, path, 0, 0x100);
		submit(r, 0);
	}
	for (int i = 0; i < 6 * ENTRIES; i++) {
		if (atomic_load(r->cq_tail) == atomic_load(r->cq_head))
			enter(r, 0, 1);
		expect(r, 0x100, -ENOENT);
	}
}

/* An operation that takes effect and one that waits. Neither result is taken: that needs another call, with GETEVENTS. */
static void unfetched(struct ring *r)
{
	static char back[LENGTH];
	struct io_uring_sqe *e;
	int empty[2];

	must(!pipe(empty), "pipe");
	queue(r, IORING_OP_READ, empty[0], back, LENGTH, 0x100);
	e = queue(r, IORING_OP_OPENAT, AT_FDCWD, path, 0600, 0x101);
	e->open_flags = O_CREAT | O_RDWR;
	e->flags = IOSQE_ASYNC;
	submit(r, 0);
	pause();
}

/* Reads one byte after the other, MANY times. */
static void many(struct ring *r)
{
	int zero = open("/dev/zero", O_RDONLY);
	char byte;

	for (int i = 0; i < MANY / ENTRIES; i++) {
		for (int k = 0; k < ENTRIES; k++)
			queue(r, IORING_OP_READ, zero, &byte, 1, k);
		submit(r, ENTRIES);
		for (int k = 0; k < ENTRIES; k++)
			expect(r, k, 1);
	}
}

/* One operation that accepts two connections. */
static void multishot(struct ring *r)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM, 0), client;
	struct io_uring_sqe *e;
	socklen_t n = sizeof(at);

	must(!bind(listener, (void *)&at, n) && !listen(listener, 4) && !getsockname(listener, (void *)&at, &n), "listen");
	e = queue(r, IORING_OP_ACCEPT, listener, 0, 0, 0x100);
	e->ioprio = IORING_ACCEPT_MULTISHOT;
	submit(r, 0);
	for (int i = 0; i < 2; i++) {
		client = socket(AF_INET, SOCK_STREAM, 0);
		must(!connect(client, (void *)&at, n), "connect");
		submit(r, 1);
		must(result(r, 0x100) >= 0, "accept");
	}
	queue(r, IORING_OP_ASYNC_CANCEL, -1, (void *)0x100, 0, 0x101);
	submit(r, 2);
	expect(r, 0x101, 0);
	expect(r, 0x100, -ECANCELED);
}

/* A success without a result, and then a multishot accept with the same number. */
static void reused(struct ring *r)
{
	struct io_uring_sqe *e = queue(r, IORING_OP_OPENAT, AT_FDCWD, path, 0600, 0x100);

	e->open_flags = O_CREAT | O_RDWR;
	e->flags = IOSQE_CQE_SKIP_SUCCESS | IOSQE_IO_LINK;
	queue(r, IORING_OP_NOP, 0, 0, 0, 0x101); /* its result says that the file is open */
	submit(r, 1);
	expect(r, 0x101, 0);
	multishot(r);
}

/* Takes the ring from another process: unix(7) passes no io_uring. */
static void take(const struct io_uring_params *p, pid_t from, int fd)
{
	int pidfd = syscall(SYS_pidfd_open, from, 0);
	struct ring r = {.fd = syscall(SYS_pidfd_getfd, pidfd, fd, 0)};

	must(r.fd >= 0, "pidfd_getfd");
	map_ring(&r, p);
	use(&r, 0);
}

static void in_child(void (*work)(void *), void *argument)
{
	int status;
	pid_t child = fork();

	if (!child) {
		work(argument);
		exit(0);
	}
	must(waitpid(child, &status, 0) == child && !status, "child");
}

static void use_here(void *r)
{
	use(r, 0);
}

/* Uses a ring of its own when the process's first thread has ended. */
static void *use_alone(void *unused)
{
	char state = 0;
	struct ring r;
	FILE *f;

	while (state != 'Z') {
		f = fopen("/proc/self/stat", "r");
		must(f && fscanf(f, "%*d %*s %c", &state) == 1, "state of the first thread");
		fclose(f);
	}
	setup(&r, IORING_SETUP_SQPOLL);
	use(&r, 0);
	exit(0);
}

static unsigned flags_of(const char *variant)
{
	if (!strcmp(variant, "sqpoll"))
		return IORING_SETUP_SQPOLL;
	if (!strcmp(variant, "deferred") || !strcmp(variant, "unfetched"))
		return IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
	if (!strcmp(variant, "large"))
		return IORING_SETUP_SQE128;
	return 0;
}

int main(int argc, char **argv)
{
	const char *variant = argv[1];
	const int ring_fd = 100;
	struct io_uring_params p;
	int ready[2], status;
	pthread_t thread;
	pid_t child;
	struct ring r;

	must(argc == 3, "arguments");
	path = argv[2];
	if (!strcmp(variant, "passed")) {
		must(!pipe(ready), "pipe");
		child = fork();
		if (!child) {
			must(read(ready[0], &p, sizeof(p)) == sizeof(p), "read");
			take(&p, getppid(), ring_fd);
			return 0;
		}
		p = setup(&r, 0);
		must(dup2(r.fd, ring_fd) == ring_fd && write(ready[1], &p, sizeof(p)) == sizeof(p), "write");
		must(waitpid(child, &status, 0) == child && !status, "child");
		return 0;
	}
	if (!strcmp(variant, "orphaned")) {
		must(!pthread_create(&thread, NULL, use_alone, NULL), "pthread_create");
		syscall(SYS_exit, 0);
	}
	setup(&r, flags_of(variant));
	if (!strcmp(variant, "unfetched"))
		unfetched(&r);
	else if (!strcmp(variant, "plain") || flags_of(variant))
		use(&r, 0);
	else if (!strcmp(variant, "async"))
		use(&r, IOSQE_ASYNC);
	else if (!strcmp(variant, "linked"))
		linked(&r);
	else if (!strcmp(variant, "silent"))
		silent(&r);
	else if (!strcmp(variant, "reused"))
		reused(&r);
	else if (!strcmp(variant, "overflow"))
		overflow(&r);
	else if (!strcmp(variant, "many"))
		many(&r);
	else if (!strcmp(variant, "multishot"))
		multishot(&r);
	else if (!strcmp(variant, "forked"))
		in_child(use_here, &r);
	else
		must(0, variant);
	return 0;
}
