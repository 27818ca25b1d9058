package decode

import "golang.org/x/sys/unix"

// Arguments of calls about memory.
var (
	address = Argument{"addr", ArgHex}
	length  = Argument{"length", ArgUint}
	advice  = Argument{"advice", ArgInt}
	prot    = Argument{"prot", ArgHex}
)

// memoryCalls are the calls that change a process's mappings.
var memoryCalls = []Call{
	{unix.SYS_MMAP, "mmap", GroupMemory, args(address, length, prot, flags, fd, offset), false, false},
	{unix.SYS_MUNMAP, "munmap", GroupMemory, args(address, length), false, false},
	{unix.SYS_BRK, "brk", GroupMemory, args(address), false, false},
	{unix.SYS_MPROTECT, "mprotect", GroupMemory, args(address, length, prot), false, false},
	{unix.SYS_MREMAP, "mremap", GroupMemory, args(Argument{"old_address", ArgHex}, Argument{"old_size", ArgUint}, Argument{"new_size", ArgUint}, flags, Argument{"new_address", ArgHex}), false, false},
	{unix.SYS_MADVISE, "madvise", GroupMemory, args(address, length, advice), false, false},
	{unix.SYS_MSYNC, "msync", GroupMemory, args(address, length, flags), false, false},
	{unix.SYS_MLOCK, "mlock", GroupMemory, args(address, length), false, false},
	{unix.SYS_MLOCK2, "mlock2", GroupMemory, args(address, length, flags), false, false},
	{unix.SYS_MUNLOCK, "munlock", GroupMemory, args(address, length), false, false},
	{unix.SYS_MLOCKALL, "mlockall", GroupMemory, args(flags), false, false},
	{unix.SYS_MUNLOCKALL, "munlockall", GroupMemory, nil, false, false},
}
