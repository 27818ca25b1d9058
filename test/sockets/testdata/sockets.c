// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// Sockets that a test knows: sockets MODE IP4 PEER4 IP6 PEER6 PORT. It prints lines "PID PORT" of who has which socket, then "ready".
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ECHO_PORT 9000
#define OTHER_PEER "fd77::5:0:0:3" // its flow has another place in the programs' memory of flows than the peer's

static char *ip[2], *peer[2];
static int base;

static struct sockaddr_storage address(const char *text, int port, socklen_t *len)
{
	struct sockaddr_storage a = { 0 };
	struct sockaddr_in *v4 = (void *)&a;
	struct sockaddr_in6 *v6 = (void *)&a;

	if (strchr(text, ':')) {
		*v6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons(port) };
		inet_pton(AF_INET6, text, &v6->sin6_addr);
		*len = sizeof(*v6);
	} else {
		*v4 = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
		inet_pton(AF_INET, text, &v4->sin_addr);
		*len = sizeof(*v4);
	}
	return a;
}

static int bound(int type, int family, int port)
{
	socklen_t len;
	struct sockaddr_storage a = address(ip[family], port, &len);
	struct timeval patience = { .tv_usec = 100000 }; // datagrams may be lost
	int one = 1, fd = socket(a.ss_family, type | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (type == SOCK_DGRAM)
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (bind(fd, (void *)&a, len)) {
		perror("bind");
		exit(1);
	}
	return fd;
}

static void *echo_udp(void *arg)
{
	int fd = (long)arg, n;
	struct sockaddr_storage from;
	char b[2000];

	for (;;) {
		socklen_t len = sizeof(from);

		n = recvfrom(fd, b, sizeof(b), 0, (void *)&from, &len);
		if (n >= 0)
			sendto(fd, b, n, 0, (void *)&from, len);
	}
	return 0;
}

static void *echo_tcp(void *arg)
{
	int fd = (long)arg, c, n;
	char b[2000];

	for (;;) {
		c = accept4(fd, 0, 0, SOCK_CLOEXEC);
		while (c >= 0 && (n = recv(c, b, sizeof(b), 0)) > 0)
			send(c, b, n, MSG_NOSIGNAL);
		close(c);
	}
	return 0;
}

static void *talk(void *arg)
{
	char b[100] = "hello";

	for (;;) {
		send((long)arg, b, 5, MSG_NOSIGNAL);
		recv((long)arg, b, sizeof(b), 0);
		usleep(10000);
	}
	return 0;
}

static void *talk_unconnected(void *arg)
{
	int v6 = (long)arg & 1;
	long fd = (long)arg >> 1;
	socklen_t len;
	struct sockaddr_storage to = address(peer[v6], ECHO_PORT, &len);
	char b[100] = "hello";

	for (;;) {
		sendto(fd, b, 5, 0, (void *)&to, len);
		recv(fd, b, sizeof(b), 0);
		usleep(10000);
	}
	return 0;
}

static void start(void *(*run)(void *), long arg)
{
	pthread_t t;

	pthread_create(&t, 0, run, (void *)arg);
}

static long connected(int type, int family, int port)
{
	int fd = bound(type, family, port);
	socklen_t len;
	struct sockaddr_storage a = address(peer[family], ECHO_PORT, &len);

	if (connect(fd, (void *)&a, len))
		perror("connect");
	return fd;
}

static void says(int pid, int port)
{
	printf("%d %d\n", pid, port);
}

static void ready(void)
{
	printf("ready\n");
	fflush(stdout);
}

static void all(void)
{
	for (int v6 = 0; v6 < 2; v6++) {
		int fd = bound(SOCK_STREAM, v6, base + v6);

		listen(fd, 100);
		start(echo_tcp, fd);
		start(echo_udp, bound(SOCK_DGRAM, v6, base + 2 + v6));
		start(talk, connected(SOCK_STREAM, v6, base + 4 + v6));
		start(talk, connected(SOCK_DGRAM, v6, base + 6 + v6));
		start(talk_unconnected, (long)bound(SOCK_DGRAM, v6, base + 8 + v6) << 1 | v6);
	}
	for (int i = 0; i < 10; i++)
		says(getpid(), base + i);
	ready();
	pause();
}

// Does nothing, as the first process of a Pod.
static void sandbox(void)
{
	ready();
	pause();
}

static void send_fd(int over, int fd)
{
	char c = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	sendmsg(over, &m, 0);
}

static int receive_fd(int over)
{
	char c, control[CMSG_SPACE(sizeof(int))];
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	int fd;

	if (recvmsg(over, &m, 0) < 0)
		exit(1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static void send_number(int over, int n)
{
	if (write(over, &n, sizeof(n)) != sizeof(n))
		exit(1);
}

static int receive_number(int over)
{
	int n;

	if (read(over, &n, sizeof(n)) != sizeof(n))
		exit(1);
	return n;
}

// Hands a socket to a child that was forked before, and keeps no descriptor of it.
static void pass(int type)
{
	int pair[2], fd, child;

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	child = fork();
	if (!child) {
		fd = receive_fd(pair[0]);
		send_fd(pair[0], pair[0]); // says that it has the socket
		type == SOCK_STREAM ? echo_tcp((void *)(long)fd) : echo_udp((void *)(long)fd);
	}
	fd = bound(type, 0, base);
	if (type == SOCK_STREAM)
		listen(fd, 100);
	send_fd(pair[1], fd);
	close(fd);
	receive_fd(pair[1]);
	says(child, base);
	ready();
	waitpid(child, 0, 0);
}

// Hands a bound socket to a child that was forked before, and keeps no descriptor of it. The child listens, and answers.
static void pass_bound(void)
{
	int pair[2], fd, child;

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	child = fork();
	if (!child) {
		fd = receive_fd(pair[0]);
		listen(fd, 100);
		send_number(pair[0], 0);
		echo_tcp((void *)(long)fd);
	}
	fd = bound(SOCK_STREAM, 0, base);
	send_fd(pair[1], fd);
	close(fd);
	receive_number(pair[1]);
	says(child, base);
	ready();
	waitpid(child, 0, 0);
}

// Accepts connections, and hands each to a child that was forked before.
static void pass_accepted(void)
{
	int pair[2], fd = bound(SOCK_STREAM, 0, base), c, n, child;
	char b[2000];

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	child = fork();
	if (!child) {
		close(fd);
		for (;;) {
			c = receive_fd(pair[0]);
			while ((n = recv(c, b, sizeof(b), 0)) > 0)
				send(c, b, n, MSG_NOSIGNAL);
			close(c);
		}
	}
	listen(fd, 100);
	says(child, base);
	ready();
	for (;;) {
		c = accept(fd, 0, 0);
		send_fd(pair[1], c);
		close(c);
	}
}

// Gives a socket to a child by fork; with keep it keeps it, too.
static void fork_with(int keep)
{
	int fd = bound(SOCK_DGRAM, 0, base), child = fork();

	if (!child)
		echo_udp((void *)(long)fd);
	if (!keep)
		close(fd);
	says(child, base);
	if (keep)
		says(getpid(), base);
	ready();
	waitpid(child, 0, 0);
}

// Returns when all writing ends of a pipe are closed.
static void read_all(int fd)
{
	char c;

	while (read(fd, &c, 1) > 0)
		;
}

static void take_user(uid_t user)
{
	if (setresuid(user, user, user)) {
		perror("setresuid");
		exit(1);
	}
}

// Connects to its port of the peer, and closes the connection. A child sends it over a Unix socket, closes it, and starts another
// program, which keeps the Unix socket and receives nothing. The child takes one user before, and another one after it has sent.
static void put_in_flight(uid_t before, uid_t after)
{
	int pair[2], closed[2], fd = bound(SOCK_STREAM, 0, base), child;
	socklen_t len;
	struct sockaddr_storage to = address(peer[0], base, &len);

	if (connect(fd, (void *)&to, len) || pipe2(closed, O_CLOEXEC)) {
		perror("connect");
		exit(1);
	}
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	child = fork();
	if (!child) {
		close(closed[1]);
		take_user(before);
		send_fd(pair[0], fd);
		close(fd);
		if (after != before)
			take_user(after);
		execl("/bin/sleep", "sleep", "600", (char *)0);
		_exit(1);
	}
	close(fd);
	close(closed[1]);
	read_all(closed[0]); // the child has started the program
	says(getpid(), base);
	ready();
	waitpid(child, 0, 0);
}

// A UDP socket that has the port together with another process's: by SO_REUSEADDR (a), SO_REUSEPORT (p), a device (d), or because the
// other one, which is not the first, has another address as long as it is connected there (c).
static int beside(char how, int first)
{
	const char *device = first ? "eth0" : "lo";
	int one = 1, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len;
	struct sockaddr_storage here = address(how == 'c' && !first ? "0.0.0.0" : ip[0], base, &len), lo = address("127.0.0.1", 1, &len);

	if (how == 'a')
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (how == 'p')
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (how == 'd')
		setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, strlen(device));
	if (bind(fd, (void *)&here, len) || (how == 'c' && !first && connect(fd, (void *)&lo, len))) {
		perror("share a port");
		exit(1);
	}
	return fd;
}

// Clears what has let a socket have its port beside another one.
static void forget_beside(char how, int fd, int first)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct timeval patience = { .tv_usec = 100000 };
	int zero = 0;

	if (how == 'a')
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &zero, sizeof(zero));
	if (how == 'p')
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &zero, sizeof(zero));
	if (how == 'd')
		setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "", 0);
	if (how == 'c' && !first)
		connect(fd, &none, sizeof(none));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

// This process and a child have UDP sockets at the same address, without an option that says so. The child's is connected to the peer,
// and receives all packets from there.
static void connect_beside(char how)
{
	int pair[2], fd, child;
	socklen_t len;
	struct sockaddr_storage to = address(peer[0], ECHO_PORT, &len);

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	child = fork();
	if (!child) {
		fd = beside(how, 0);
		send_number(pair[0], 0);
		receive_number(pair[0]);
		forget_beside(how, fd, 0);
		if (connect(fd, (void *)&to, len)) {
			perror("connect");
			exit(1);
		}
		send_number(pair[0], 0);
		talk((void *)(long)fd);
	}
	receive_number(pair[1]);
	fd = beside(how, 1);
	forget_beside(how, fd, 1);
	send_number(pair[1], 0);
	receive_number(pair[1]);
	says(getpid(), base);
	says(child, base);
	ready();
	echo_udp((void *)(long)fd);
}

// Has a child that shares its descriptors make a socket, and uses that.
static void clone_files(void)
{
	int child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);

	if (!child) {
		dup2(bound(SOCK_DGRAM, 0, base), 100);
		_exit(0);
	}
	waitpid(child, 0, 0);
	close(3);
	says(getpid(), base);
	ready();
	echo_udp((void *)100L);
}

static void *wait_with_a_table(void *arg)
{
	unshare(CLONE_FILES);
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
	return 0;
}

// A child that shares this process's descriptors uses a socket of it. As a thread has descriptors of its own, as many have them as
// there are threads.
static void share_table(void)
{
	static int apart;
	int child, fd, pair[2], got;
	sigset_t begin;

	sigemptyset(&begin);
	sigaddset(&begin, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &begin, 0);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	start(wait_with_a_table, (long)&apart);
	while (!__atomic_load_n(&apart, __ATOMIC_ACQUIRE))
		usleep(100);
	child = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	if (!child)
		talk((void *)(long)receive_number(pair[0]));
	says(child, base);
	ready();
	sigwait(&begin, &got); // until the capture has begun
	fd = connected(SOCK_DGRAM, 0, base);
	send_number(pair[1], fd);
	waitpid(child, 0, 0);
}

// Two processes accept connections of one listener.
static void prefork(void)
{
	int fd = bound(SOCK_STREAM, 0, base), child;

	listen(fd, 100);
	child = fork();
	if (!child)
		echo_tcp((void *)(long)fd);
	says(getpid(), base);
	says(child, base);
	ready();
	echo_tcp((void *)(long)fd);
}

static long microseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

// Forks without end children that run another program, as a shell script does. A slow start of a program does not fill the time.
static void spawn(void)
{
	long begun, rest;
	int child;

	start(echo_udp, bound(SOCK_DGRAM, 0, base));
	says(getpid(), base);
	ready();
	for (;;) {
		begun = microseconds();
		child = vfork();
		if (!child) {
			execl("/bin/true", "true", (char *)0);
			_exit(1);
		}
		waitpid(child, 0, 0);
		rest = 4 * (microseconds() - begun);
		usleep(rest > 20000 ? rest : 20000);
	}
}

// Forks for each connection, and closes it. Then the child answers more than a slow client takes at once, and ends, or with exec
// starts a program that does not get the connection.
static void fork_each(int exec)
{
	static char answer[150000];
	int fd = bound(SOCK_STREAM, 0, base), size = 2 * sizeof(answer), c, closed[2];

	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	listen(fd, 100);
	signal(SIGCHLD, SIG_IGN);
	start(echo_udp, bound(SOCK_DGRAM, 0, base + 1));
	says(getpid(), base);
	says(getpid(), base + 1);
	ready();
	for (;;) {
		c = accept4(fd, 0, 0, SOCK_CLOEXEC);
		if (pipe(closed))
			exit(1);
		if (!fork()) {
			close(closed[1]);
			read_all(closed[0]);
			recv(c, answer, sizeof(answer), 0);
			send(c, answer, sizeof(answer), MSG_NOSIGNAL);
			if (exec)
				execl("/bin/true", "true", (char *)0);
			_exit(0);
		}
		close(c);
		close(closed[0]);
		close(closed[1]);
	}
}

// Has a socket, and memory that takes the kernel some time to free.
static void large(void)
{
	size_t size = 256 << 20;
	char *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	madvise(memory, size, MADV_NOHUGEPAGE);
	memset(memory, 1, size);
	bound(SOCK_DGRAM, 0, base);
	says(getpid(), base);
	ready();
	pause();
}

// Receives at all addresses.
static void any(int v6)
{
	ip[0] = "0.0.0.0", ip[1] = "::";
	start(echo_udp, bound(SOCK_DGRAM, v6, base + 2 + v6));
	says(getpid(), base + 2 + v6);
	ready();
	pause();
}

// Receives at the IPv4 address of loopback, by a socket of IPv6.
static void mapped(void)
{
	ip[1] = "::ffff:127.0.0.1";
	start(echo_udp, bound(SOCK_DGRAM, 1, base));
	says(getpid(), base);
	ready();
	pause();
}

// Connects one socket to the peer and to another host in turn, with the same ports.
static void reconnect(void)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct timeval patience = { .tv_usec = 100000 };
	int fd = bound(SOCK_STREAM, 1, base);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	says(getpid(), base);
	ready();
	for (int turn = 0;; turn = !turn) {
		socklen_t len;
		struct sockaddr_storage to = address(turn ? OTHER_PEER : peer[1], ECHO_PORT, &len);
		char b[100] = "hello";

		if (connect(fd, (void *)&to, len))
			perror("connect");
		for (int i = 0; i < 20; i++) {
			send(fd, b, 5, MSG_NOSIGNAL);
			recv(fd, b, sizeof(b), 0);
			usleep(5000);
		}
		connect(fd, &none, sizeof(none));
	}
}

// Answers one packet, and ends.
static void once(void)
{
	int fd = bound(SOCK_DGRAM, 0, base), n;
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	char b[2000];

	says(getpid(), base);
	ready();
	do
		n = recvfrom(fd, b, sizeof(b), 0, (void *)&from, &len);
	while (n < 0);
	sendto(fd, b, n, 0, (void *)&from, len);
}

static void *flood(void *arg)
{
	int fd = (long)arg;
	static char b[65536];

	for (;;) {
		send(fd, b, sizeof(b), MSG_DONTWAIT | MSG_NOSIGNAL);
		recv(fd, b, sizeof(b), MSG_DONTWAIT);
	}
	return 0;
}

/* Sends large segments, and has another name after each pause, in microseconds. */
static void rename_self(int pause)
{
	int fd = bound(SOCK_STREAM, 0, base);
	socklen_t len;
	struct sockaddr_storage to = address(peer[0], ECHO_PORT, &len);
	pthread_t t;

	if (connect(fd, (void *)&to, len))
		exit(1);
	says(getpid(), base);
	ready();
	pthread_create(&t, 0, flood, (void *)(long)fd);
	for (;;) {
		prctl(PR_SET_NAME, "a");
		if (pause)
			usleep(pause);
		prctl(PR_SET_NAME, "fifteen letters");
		if (pause)
			usleep(pause);
	}
}

// Sends by the first registered file of an io_uring, so many times, every 10 ms. With hidden the process has no descriptor of it.
static void send_by(int ring, int times, int hidden)
{
	struct io_uring_rsrc_update self = { .offset = -1, .data = ring };
	unsigned int flags = IORING_ENTER_GETEVENTS;
	struct io_uring_params p = { 0 };
	char text[] = "hello";
	// The offsets are those of each io_uring of one entry, which its creator has from io_uring_setup.
	int other = syscall(SYS_io_uring_setup, 1, &p);
	char *r = mmap(0, p.sq_off.array + p.sq_entries * sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	char *c = mmap(0, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
	struct io_uring_sqe *e = mmap(0, sizeof(*e), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);

	close(other);
	if (r == MAP_FAILED || c == MAP_FAILED || e == MAP_FAILED)
		exit(1);
	if (hidden) {
		if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_RING_FDS, &self, 1) != 1)
			exit(1);
		close(ring);
		ring = self.offset;
		flags |= IORING_ENTER_REGISTERED_RING;
	}
	for (int i = 0; i < times; i++) {
		unsigned int tail = *(unsigned int *)(r + p.sq_off.tail);

		*e = (struct io_uring_sqe){ .opcode = IORING_OP_SEND, .flags = IOSQE_FIXED_FILE, .addr = (long)text, .len = 5 };
		((unsigned int *)(r + p.sq_off.array))[0] = 0;
		__atomic_store_n((unsigned int *)(r + p.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
		if (syscall(SYS_io_uring_enter, ring, 1, 1, flags, 0, 0) != 1)
			exit(1);
		*(unsigned int *)(c + p.cq_off.head) = *(unsigned int *)(c + p.cq_off.tail);
		usleep(10000);
	}
}

static void send_by_ring(int ring, int times)
{
	send_by(ring, times, 0);
}

static int ring_with(int fd)
{
	struct io_uring_params p = { 0 };
	int r = syscall(SYS_io_uring_setup, 1, &p);

	if (r < 0 || syscall(SYS_io_uring_register, r, IORING_REGISTER_FILES, &fd, 1)) {
		perror("io_uring");
		exit(1);
	}
	return r;
}

// A child has this process's socket in an io_uring only, and sends; this process keeps its descriptor. The child inherits the
// io_uring, or makes its own when it has received or taken the socket. With hidden it has no descriptor of the io_uring.
static void ring_beside(char how, int hidden)
{
	int pair[2], fd = -1, r, child;

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	if (how == 'i') {
		fd = connected(SOCK_DGRAM, 0, base);
		r = ring_with(fd);
	}
	child = fork();
	if (!child) {
		if (how == 'r')
			fd = receive_fd(pair[0]);
		if (how == 't')
			fd = syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, getppid(), 0), receive_number(pair[0]), 0);
		if (how != 'i')
			r = ring_with(fd);
		close(fd);
		send_number(pair[0], 0); // it has no descriptor of the socket
		send_by(r, INT_MAX, hidden);
	}
	if (how != 'i')
		fd = connected(SOCK_DGRAM, 0, base);
	else
		close(r);
	if (how == 'r')
		send_fd(pair[1], fd);
	if (how == 't')
		send_number(pair[1], fd);
	receive_number(pair[1]);
	says(child, base);
	ready();
	waitpid(child, 0, 0);
}

// A child takes this process's socket without a trace, and this process closes it.
static void taken(void)
{
	int pair[2], fd, child;

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	child = fork();
	if (!child) {
		fd = syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, getppid(), 0), receive_number(pair[0]), 0);
		send_number(pair[0], 0);
		talk((void *)(long)fd);
	}
	fd = connected(SOCK_DGRAM, 0, base);
	send_number(pair[1], fd);
	receive_number(pair[1]);
	close(fd);
	says(child, base);
	ready();
	waitpid(child, 0, 0);
}

// Forks children on one processor without end that live for a while, and at most 200 at a time: a slow machine forks faster than it
// ends them. It runs before other programs of that processor, so that it forks during each scan there, however busy the machine is.
static void fork_on(int cpu)
{
	cpu_set_t one;
	int children = 0;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || sched_setaffinity(0, sizeof(one), &one) || setpriority(PRIO_PROCESS, 0, -20)) {
		perror("fork on a processor");
		exit(1);
	}
	for (;;) {
		if (!fork()) {
			usleep(400000);
			_exit(0);
		}
		for (children++; children && waitpid(-1, NULL, children < 200 ? WNOHANG : 0) > 0; children--)
			;
		usleep(4000);
	}
}

// Forks on each processor, but at most on four: more have time for a scan and a fork at the same time.
static void fork_often(void)
{
	cpu_set_t usable;

	sched_getaffinity(0, sizeof(usable), &usable);
	for (int cpu = 0, forking = 0; cpu < CPU_SETSIZE && forking < 4; cpu++) {
		if (!CPU_ISSET(cpu, &usable))
			continue;
		if (!fork())
			fork_on(cpu);
		forking++;
	}
	ready();
	pause();
}

// Registers a socket with an io_uring, which a child sends with: a copy of this program, or with exec another one. With keep this
// process keeps its descriptor of the socket. With lend the child ends, and this process sends.
static void ring(char **argv, int keep, int exec, int lend)
{
	struct io_uring_params p = { 0 };
	int fd = connected(SOCK_DGRAM, 0, base), child, r = syscall(SYS_io_uring_setup, 1, &p);

	if (r < 0 || syscall(SYS_io_uring_register, r, IORING_REGISTER_FILES, &fd, 1)) {
		perror("io_uring");
		exit(1);
	}
	fcntl(r, F_SETFD, 0);
	if (!keep)
		close(fd);
	child = fork();
	if (!child) {
		if (keep)
			close(fd);
		if (lend) {
			send_by_ring(r, 150);
			_exit(0);
		}
		if (!exec)
			send_by_ring(r, INT_MAX);
		dup2(r, 100);
		close(r);
		execl("/proc/self/exe", "sockets", "by-ring", argv[2], argv[3], argv[4], argv[5], "100", (char *)0);
		_exit(1);
	}
	says(lend ? getpid() : child, base);
	ready();
	waitpid(child, 0, 0);
	if (lend)
		talk((void *)(long)fd);
}

// Sends by an io_uring of its own; with empty by its socket, while a child has the io_uring, too, with which no socket is registered.
static void ring_alone(int empty)
{
	struct io_uring_params p = { 0 };
	int fd = connected(SOCK_DGRAM, 0, base), r = syscall(SYS_io_uring_setup, 1, &p);

	if (r < 0 || (!empty && syscall(SYS_io_uring_register, r, IORING_REGISTER_FILES, &fd, 1))) {
		perror("io_uring");
		exit(1);
	}
	says(getpid(), base);
	if (empty) {
		int child = fork();

		if (!child) {
			close(fd);
			pause();
		}
		says(child, 0);
	}
	ready();
	if (empty)
		talk((void *)(long)fd);
	send_by_ring(r, INT_MAX);
}

int main(int argc, char **argv)
{
	if (argc != 7)
		return 2;
	ip[0] = argv[2], peer[0] = argv[3], ip[1] = argv[4], peer[1] = argv[5];
	base = atoi(argv[6]);
	if (!strcmp(argv[1], "all"))
		all();
	else if (!strcmp(argv[1], "sandbox"))
		sandbox();
	else if (!strcmp(argv[1], "large"))
		large();
	else if (!strcmp(argv[1], "any"))
		any(0);
	else if (!strcmp(argv[1], "any6"))
		any(1);
	else if (!strcmp(argv[1], "mapped"))
		mapped();
	else if (!strcmp(argv[1], "reconnect"))
		reconnect();
	else if (!strcmp(argv[1], "pass"))
		pass(SOCK_DGRAM);
	else if (!strcmp(argv[1], "pass-listener"))
		pass(SOCK_STREAM);
	else if (!strcmp(argv[1], "pass-bound"))
		pass_bound();
	else if (!strcmp(argv[1], "in-flight"))
		put_in_flight(0, 0);
	else if (!strcmp(argv[1], "in-flight-user-before"))
		put_in_flight(65534, 65534);
	else if (!strcmp(argv[1], "in-flight-user-after"))
		put_in_flight(0, 65534);
	else if (!strncmp(argv[1], "beside-", 7))
		connect_beside(argv[1][7]);
	else if (!strcmp(argv[1], "pass-accepted"))
		pass_accepted();
	else if (!strcmp(argv[1], "fork"))
		fork_with(0);
	else if (!strcmp(argv[1], "share"))
		fork_with(1);
	else if (!strcmp(argv[1], "prefork"))
		prefork();
	else if (!strcmp(argv[1], "clone-files"))
		clone_files();
	else if (!strcmp(argv[1], "spawn"))
		spawn();
	else if (!strcmp(argv[1], "fork-each"))
		fork_each(0);
	else if (!strcmp(argv[1], "fork-each-exec"))
		fork_each(1);
	else if (!strcmp(argv[1], "once"))
		once();
	else if (!strcmp(argv[1], "ring-exec"))
		ring(argv, 0, 1, 0);
	else if (!strcmp(argv[1], "ring-exec-keep"))
		ring(argv, 1, 1, 0);
	else if (!strcmp(argv[1], "ring-fork"))
		ring(argv, 0, 0, 0);
	else if (!strcmp(argv[1], "ring-fork-keep"))
		ring(argv, 1, 0, 0);
	else if (!strcmp(argv[1], "ring-lend"))
		ring(argv, 1, 0, 1);
	else if (!strcmp(argv[1], "ring-alone"))
		ring_alone(0);
	else if (!strcmp(argv[1], "ring-empty"))
		ring_alone(1);
	else if (!strcmp(argv[1], "ring-inherited"))
		ring_beside('i', 0);
	else if (!strcmp(argv[1], "ring-received"))
		ring_beside('r', 0);
	else if (!strcmp(argv[1], "ring-taken"))
		ring_beside('t', 0);
	else if (!strcmp(argv[1], "ring-hidden"))
		ring_beside('i', 1);
	else if (!strcmp(argv[1], "share-table"))
		share_table();
	else if (!strcmp(argv[1], "taken"))
		taken();
	else if (!strcmp(argv[1], "fork-often"))
		fork_often();
	else if (!strcmp(argv[1], "by-ring"))
		send_by_ring(base, INT_MAX);
	else if (!strcmp(argv[1], "rename"))
		rename_self(0);
	else if (!strcmp(argv[1], "rename-each-ms"))
		rename_self(1000);
	return 0;
}
