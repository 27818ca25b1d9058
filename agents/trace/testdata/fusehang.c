/*
 * fusehang FILE: mounts a file system of one file on FILE, in a mount namespace of its own, and opens the file. It has
 * the file in an epoll, and memory that is the file's, where its arguments are. Its server is a child, which answers
 * neither polls nor reads. It prints the child's process: when that ends, the kernel wakes all that wait for it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

static int dev, epoll, file;

static void check(long ret, const char *what)
{
	if (ret >= 0)
		return;
	perror(what);
	exit(1);
}

static void reply(__u64 unique, int error, void *body, size_t length)
{
	struct fuse_out_header h = {.len = sizeof(h) + length, .error = error, .unique = unique};
	struct iovec parts[2] = {{&h, sizeof(h)}, {body, length}};

	check(writev(dev, parts, length ? 2 : 1), "reply");
}

static void serve(void)
{
	static char b[1 << 20];
	struct fuse_in_header *h = (void *)b;

	for (;;) {
		check(read(dev, b, sizeof(b)), "read a request");
		switch (h->opcode) {
		case FUSE_INIT: {
			struct fuse_init_out o = {.major = 7, .minor = 31, .max_write = 4096};
			reply(h->unique, 0, &o, sizeof(o));
			break;
		}
		case FUSE_GETATTR: {
			struct fuse_attr_out o = {.attr_valid = 1000, .attr = {.ino = 1, .mode = 0100644, .nlink = 1, .size = 4096}};
			reply(h->unique, 0, &o, sizeof(o));
			break;
		}
		case FUSE_OPEN: {
			struct fuse_open_out o = {0};
			reply(h->unique, 0, &o, sizeof(o));
			break;
		}
		case FUSE_POLL:
		case FUSE_READ:
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
			break;
		case FUSE_FLUSH:
		case FUSE_RELEASE:
			reply(h->unique, 0, 0, 0);
			break;
		default:
			reply(h->unique, -ENOSYS, 0, 0);
		}
	}
}

static void *add(void *unused)
{
	struct epoll_event e = {.events = EPOLLIN};

	epoll_ctl(epoll, EPOLL_CTL_ADD, file, &e); /* the kernel polls the file, and waits */
	return 0;
}

/* A process needs no right to say that its arguments are elsewhere in its memory. */
static void move_arguments(__u64 to)
{
	struct prctl_mm_map m = {.brk = (__u64)sbrk(0), .exe_fd = -1};
	__u64 fields[53] = {0};
	char text[4096], *at;
	FILE *stat = fopen("/proc/self/stat", "r");

	check(stat && fgets(text, sizeof(text), stat) ? 0 : -1, "read /proc/self/stat");
	fclose(stat);
	at = strrchr(text, ')') + 4; /* behind the name and the state */
	for (int i = 4; i < 53; i++) /* as proc_pid_stat(5) numbers them */
		fields[i] = strtoull(at, &at, 10);
	m.start_code = fields[26];
	m.end_code = fields[27];
	m.start_stack = fields[28];
	m.start_data = fields[45];
	m.end_data = fields[46];
	m.start_brk = fields[47];
	m.arg_start = to;
	m.arg_end = to + 4096;
	m.env_start = fields[50];
	m.env_end = fields[51];
	check(prctl(PR_SET_MM, PR_SET_MM_MAP, &m, sizeof(m), 0), "move the arguments");
}

int main(int argc, char **argv)
{
	char options[100];
	pthread_t thread;
	void *memory;
	pid_t server;

	check(argc == 2 ? 0 : -1, "usage: fusehang FILE");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	check(unshare(CLONE_NEWNS), "unshare");
	check(mount("none", "/", 0, MS_REC | MS_PRIVATE, 0), "make mounts private");
	check(dev = open("/dev/fuse", O_RDWR | O_CLOEXEC), "open /dev/fuse");
	check(close(open(argv[1], O_CREAT | O_WRONLY, 0644)), "create the file");
	snprintf(options, sizeof(options), "fd=%d,rootmode=100644,user_id=0,group_id=0", dev);
	check(mount("hang", argv[1], "fuse", 0, options), "mount");
	check(server = fork(), "fork");
	if (!server) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve();
	}
	close(dev);
	check(file = open(argv[1], O_RDONLY), "open the file");
	memory = mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 0);
	check(memory == MAP_FAILED ? -1 : 0, "mmap");
	move_arguments((__u64)memory);
	check(epoll = epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
	if (pthread_create(&thread, 0, add, 0))
		return 1;
	usleep(300000); /* the thread waits in the kernel */
	printf("%d\n", server);
	fflush(stdout);
	pause();
	return 0;
}
