/* A 32-bit program: getpid ten times, then exit. */
	.section .note.GNU-stack, "", @progbits
	.text
	.globl _start
_start:
	movl $10, %esi
1:	movl $20, %eax
	int $0x80
	decl %esi
	jnz 1b
	movl $1, %eax
	xorl %ebx, %ebx
	int $0x80
