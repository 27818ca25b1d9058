package decode

// faultOf reads an exception's syndrome (arch/arm64/include/asm/esr.h).
func faultOf(code uint64) (access []byte, present int64) {
	const write, instruction = 1 << 6, 0x20
	access = accessRead
	switch {
	case code>>26&0x3f == instruction:
		access = accessExec
	case code&write != 0:
		access = accessWrite
	}
	if code&0x3c != 0x04 { // a translation fault means that the page is not present
		present = 1
	}
	return access, present
}
