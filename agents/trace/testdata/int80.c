/* A 64-bit program that makes 32-bit calls: getpid a thousand times, and a read, whose number is close in 64 bits. */
static long call(long number, long first)
{
	long result;

	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(0), "d"(0) : "memory", "r8", "r9", "r10", "r11");
	return result;
}

int main(void)
{
	for (int i = 0; i < 1000; i++)
		call(20, 0);
	return (int)call(3, -1) == -9 ? 0 : 1; /* EBADF */
}
