/* Copies a file by reading and writing or, on request, by mapping both. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int by_reading(int from, int to)
{
	char part[4096];
	ssize_t n;

	while ((n = read(from, part, sizeof(part))) > 0)
		if (write(to, part, n) != n)
			return 1;
	return n < 0;
}

static int by_mapping(int from, int to)
{
	struct stat st;
	char *source, *target;

	if (fstat(from, &st) || ftruncate(to, st.st_size))
		return 1;
	source = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, from, 0);
	target = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, to, 0);
	if (source == MAP_FAILED || target == MAP_FAILED)
		return 1;
	memcpy(target, source, st.st_size);
	return msync(target, st.st_size, MS_SYNC) || munmap(source, st.st_size) || munmap(target, st.st_size);
}

int main(int argc, char **argv)
{
	int from, to;

	if (argc != 4)
		return 2;
	from = open(argv[2], O_RDONLY);
	to = open(argv[3], O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (from < 0 || to < 0)
		return 1;
	return strcmp(argv[1], "map") ? by_reading(from, to) : by_mapping(from, to);
}
