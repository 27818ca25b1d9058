package decode

// faultOf reads a page fault's error code (arch/x86/include/asm/trap_pf.h).
func faultOf(code uint64) (access []byte, present int64) {
	const protection, write, instruction = 1 << 0, 1 << 1, 1 << 4
	access = accessRead
	switch {
	case code&instruction != 0:
		access = accessExec
	case code&write != 0:
		access = accessWrite
	}
	return access, int64(code & protection)
}
