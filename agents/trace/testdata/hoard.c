/*
 * hoard DIR FILES CHILDREN: keeps FILES files with paths of a thousand bytes open, and forks CHILDREN processes. Each has its
 * own copy of the descriptors and closes one. A tracer that remembers a copy of the names for each process runs out of memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(long ret, const char *what)
{
	if (ret >= 0)
		return;
	perror(what);
	exit(1);
}

int main(int argc, char **argv)
{
	char name[256], file[16];
	struct rlimit many;
	int files, children;
	pid_t *all;

	if (argc != 4)
		return 2;
	files = atoi(argv[2]);
	children = atoi(argv[3]);
	getrlimit(RLIMIT_NOFILE, &many);
	many.rlim_cur = many.rlim_max;
	check(setrlimit(RLIMIT_NOFILE, &many), "setrlimit");
	if (mkdir(argv[1], 0700) && errno != EEXIST)
		check(-1, "mkdir");
	check(chdir(argv[1]), "chdir");
	memset(name, 'd', 250);
	name[250] = 0;
	for (int i = 0; i < 4; i++) {
		if (mkdir(name, 0700) && errno != EEXIST)
			check(-1, "mkdir");
		check(chdir(name), "chdir");
	}
	for (int i = 0; i < files; i++) {
		snprintf(file, sizeof(file), "%d", i);
		check(open(file, O_CREAT | O_RDWR, 0600), "open");
		check(unlink(file), "unlink");
	}
	all = calloc(children + 1, sizeof(*all));
	for (int i = 0; i < children; i++) {
		all[i] = fork();
		check(all[i], "fork");
		if (!all[i]) {
			close(3);
			for (;;)
				pause();
		}
	}
	sleep(5);	/* the tracer has read all of it, and remembers it */
	for (int i = 0; i < children; i++)
		kill(all[i], SIGKILL);
	printf("%d files, %d children\n", files, children);
	return 0;
}
