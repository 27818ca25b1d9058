package trace

import "golang.org/x/sys/unix"

// Arguments of calls about memory.
var (
	address = argument{"addr", argHex}
	length  = argument{"length", argUint}
	advice  = argument{"advice", argInt}
	prot    = argument{"prot", argHex}
)

// memoryCalls are those by which a process changes what its addresses mean.
var memoryCalls = []call{
	{unix.SYS_MMAP, "mmap", GroupMemory, sig(address, length, prot, flags, fd, offset), false, false},
	{unix.SYS_MUNMAP, "munmap", GroupMemory, sig(address, length), false, false},
	{unix.SYS_BRK, "brk", GroupMemory, sig(address), false, false},
	{unix.SYS_MPROTECT, "mprotect", GroupMemory, sig(address, length, prot), false, false},
	{unix.SYS_MREMAP, "mremap", GroupMemory, sig(argument{"old_address", argHex}, argument{"old_size", argUint}, argument{"new_size", argUint}, flags, argument{"new_address", argHex}), false, false},
	{unix.SYS_MADVISE, "madvise", GroupMemory, sig(address, length, advice), false, false},
	{unix.SYS_MSYNC, "msync", GroupMemory, sig(address, length, flags), false, false},
	{unix.SYS_MLOCK, "mlock", GroupMemory, sig(address, length), false, false},
	{unix.SYS_MLOCK2, "mlock2", GroupMemory, sig(address, length, flags), false, false},
	{unix.SYS_MUNLOCK, "munlock", GroupMemory, sig(address, length), false, false},
	{unix.SYS_MLOCKALL, "mlockall", GroupMemory, sig(flags), false, false},
	{unix.SYS_MUNLOCKALL, "munlockall", GroupMemory, nil, false, false},
}
