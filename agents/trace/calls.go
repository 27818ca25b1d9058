package trace

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Group is what a Trace's events name: calls that belong together.
type Group string

// The groups that there are.
const (
	GroupProcess Group = "process"
	GroupFile    Group = "file"
	GroupIO      Group = "io"
	GroupMemory  Group = "memory"
	GroupSignal  Group = "signal"
	GroupNetwork Group = "network"
)

// argKind says what an argument's number means.
type argKind uint8

const (
	argInt    argKind = iota // signed, 32 bits
	argUint                  // unsigned
	argOffset                // signed, 64 bits
	argHex                   // bits or an address
	argFD                    // an open file
	argDir                   // an open directory that the next path starts from, or AT_FDCWD
	argPath                  // a string in the process's memory

	// What is read of these takes the place of the number. The argument behind an address is its length, or points to it
	// where the kernel writes the address.
	argAddress    // a socket's, in the process's memory
	argAddressOut // one that the kernel writes there, if the call succeeds
	argPair       // where the kernel writes two descriptors
)

// argument of a call: its name is the kernel's (man 2).
type argument struct {
	name string
	kind argKind
}

// call is one system call as the tracer knows it.
type call struct {
	number uint32
	name   string
	group  Group
	args   []argument
	// makes says that the result is a new file descriptor for the path, or for a copy of fd.
	makes bool
	// replaces says that a result of zero is that of another process or program, of which an event tells.
	replaces bool
}

func sig(args ...argument) []argument { return args }

// Arguments that many calls have.
var (
	fd      = argument{"fd", argFD}
	dir     = argument{"dirfd", argDir}
	pathArg = argument{"pathname", argPath}
	flags   = argument{"flags", argHex}
	mode    = argument{"mode", argHex}
	buffer  = argument{"buf", argHex}
	count   = argument{"count", argUint}
	offset  = argument{"offset", argOffset}
	vector  = argument{"iov", argHex}
	pieces  = argument{"iovcnt", argUint}
)

// common are the calls of every architecture. The old ones without a directory's descriptor are in calls_amd64.go.
var common = []call{
	{unix.SYS_EXECVE, "execve", GroupProcess, sig(pathArg), false, true},
	{unix.SYS_EXECVEAT, "execveat", GroupProcess, sig(dir, pathArg, argument{"argv", argHex}, argument{"envp", argHex}, flags), false, true},
	{unix.SYS_CLONE, "clone", GroupProcess, sig(flags), false, true},
	{unix.SYS_CLONE3, "clone3", GroupProcess, sig(argument{"cl_args", argHex}, argument{"size", argUint}), false, true},

	{unix.SYS_OPENAT, "openat", GroupFile, sig(dir, pathArg, flags, mode), true, false},
	{unix.SYS_OPENAT2, "openat2", GroupFile, sig(dir, pathArg, argument{"how", argHex}, argument{"size", argUint}), true, false},
	{unix.SYS_CLOSE, "close", GroupFile, sig(fd), false, false},
	{unix.SYS_CLOSE_RANGE, "close_range", GroupFile, sig(argument{"first", argUint}, argument{"last", argUint}, flags), false, false},
	{unix.SYS_DUP, "dup", GroupFile, sig(argument{"oldfd", argFD}), true, false},
	{unix.SYS_DUP3, "dup3", GroupFile, sig(argument{"oldfd", argFD}, argument{"newfd", argInt}, flags), true, false},
	{unix.SYS_FCNTL, "fcntl", GroupFile, sig(fd, argument{"cmd", argInt}, argument{"arg", argHex}), false, false},
	{unix.SYS_FSTAT, "fstat", GroupFile, sig(fd), false, false},
	{fstatat, fstatatName, GroupFile, sig(dir, pathArg, argument{"statbuf", argHex}, flags), false, false},
	{unix.SYS_STATX, "statx", GroupFile, sig(dir, pathArg, flags, argument{"mask", argHex}), false, false},
	{unix.SYS_FACCESSAT, "faccessat", GroupFile, sig(dir, pathArg, mode), false, false},
	{unix.SYS_FACCESSAT2, "faccessat2", GroupFile, sig(dir, pathArg, mode, flags), false, false},
	{unix.SYS_READLINKAT, "readlinkat", GroupFile, sig(dir, pathArg), false, false},
	{unix.SYS_UNLINKAT, "unlinkat", GroupFile, sig(dir, pathArg, flags), false, false},
	{unix.SYS_RENAMEAT2, "renameat2", GroupFile, sig(argument{"olddirfd", argDir}, argument{"oldpath", argPath}, argument{"newdirfd", argDir}, argument{"newpath", argPath}, flags), false, false},
	{unix.SYS_RENAMEAT, "renameat", GroupFile, sig(argument{"olddirfd", argDir}, argument{"oldpath", argPath}, argument{"newdirfd", argDir}, argument{"newpath", argPath}), false, false},
	{unix.SYS_MKDIRAT, "mkdirat", GroupFile, sig(dir, pathArg, mode), false, false},
	{unix.SYS_LINKAT, "linkat", GroupFile, sig(argument{"olddirfd", argDir}, argument{"oldpath", argPath}, argument{"newdirfd", argDir}, argument{"newpath", argPath}, flags), false, false},
	{unix.SYS_SYMLINKAT, "symlinkat", GroupFile, sig(argument{"target", argPath}, argument{"newdirfd", argDir}, argument{"linkpath", argPath}), false, false},
	{unix.SYS_FCHMODAT, "fchmodat", GroupFile, sig(dir, pathArg, mode), false, false},
	{unix.SYS_FCHMOD, "fchmod", GroupFile, sig(fd, mode), false, false},
	{unix.SYS_FCHOWNAT, "fchownat", GroupFile, sig(dir, pathArg, argument{"owner", argInt}, argument{"group", argInt}, flags), false, false},
	{unix.SYS_FCHOWN, "fchown", GroupFile, sig(fd, argument{"owner", argInt}, argument{"group", argInt}), false, false},
	{unix.SYS_TRUNCATE, "truncate", GroupFile, sig(pathArg, argument{"length", argOffset}), false, false},
	{unix.SYS_FTRUNCATE, "ftruncate", GroupFile, sig(fd, argument{"length", argOffset}), false, false},
	{unix.SYS_FSYNC, "fsync", GroupFile, sig(fd), false, false},
	{unix.SYS_FDATASYNC, "fdatasync", GroupFile, sig(fd), false, false},
	{unix.SYS_CHDIR, "chdir", GroupFile, sig(pathArg), false, false},
	{unix.SYS_FCHDIR, "fchdir", GroupFile, sig(fd), false, false},
	{unix.SYS_GETDENTS64, "getdents64", GroupFile, sig(fd, argument{"dirp", argHex}, count), false, false},

	{unix.SYS_READ, "read", GroupIO, sig(fd, buffer, count), false, false},
	{unix.SYS_WRITE, "write", GroupIO, sig(fd, buffer, count), false, false},
	{unix.SYS_PREAD64, "pread64", GroupIO, sig(fd, buffer, count, offset), false, false},
	{unix.SYS_PWRITE64, "pwrite64", GroupIO, sig(fd, buffer, count, offset), false, false},
	{unix.SYS_READV, "readv", GroupIO, sig(fd, vector, pieces), false, false},
	{unix.SYS_WRITEV, "writev", GroupIO, sig(fd, vector, pieces), false, false},
	{unix.SYS_PREADV, "preadv", GroupIO, sig(fd, vector, pieces, offset), false, false},
	{unix.SYS_PWRITEV, "pwritev", GroupIO, sig(fd, vector, pieces, offset), false, false},
	{unix.SYS_PREADV2, "preadv2", GroupIO, sig(fd, vector, pieces, offset, argument{"offset_high", argOffset}, flags), false, false},
	{unix.SYS_PWRITEV2, "pwritev2", GroupIO, sig(fd, vector, pieces, offset, argument{"offset_high", argOffset}, flags), false, false},
	{unix.SYS_SENDFILE, "sendfile", GroupIO, sig(argument{"out_fd", argFD}, argument{"in_fd", argFD}, argument{"offset", argHex}, count), false, false},
	{unix.SYS_SPLICE, "splice", GroupIO, sig(argument{"fd_in", argFD}, argument{"off_in", argHex}, argument{"fd_out", argFD}, argument{"off_out", argHex}, argument{"len", argUint}, flags), false, false},
	{unix.SYS_COPY_FILE_RANGE, "copy_file_range", GroupIO, sig(argument{"fd_in", argFD}, argument{"off_in", argHex}, argument{"fd_out", argFD}, argument{"off_out", argHex}, argument{"len", argUint}, flags), false, false},
	{unix.SYS_IO_URING_SETUP, "io_uring_setup", GroupIO, sig(argument{"entries", argUint}, argument{"params", argHex}), false, false},
	{unix.SYS_IO_URING_ENTER, "io_uring_enter", GroupIO, sig(fd, argument{"to_submit", argUint}, argument{"min_complete", argUint}, flags), false, false},
}

// tables of all calls.
var tables = [][]call{common, legacy, sockets, memoryCalls, signalCalls}

// callTable has calls by their numbers; nil is one that is not recorded.
type callTable [len(traceCalls{})]*call

// callsOf returns the calls of the groups.
func callsOf(groups []Group) *callTable {
	found := &callTable{}
	for _, list := range tables {
		for i := range list {
			if c := &list[i]; slices.Contains(groups, c.group) {
				found[c.number] = c
			}
		}
	}
	return found
}

// ROW_NOT_ZERO and ROW_ADDRESS_OUT of bpf/trace.bpf.c.
const (
	rowNotZero    = 1
	rowAddressOut = 2
)

// socket reports whether the call's address says more of its socket than the descriptor.
func (c *call) socket() bool { return c.group == GroupNetwork || c.number == unix.SYS_SENDTO }

// row is what the program is told of the call.
func (c *call) row() traceRow {
	r := traceRow{Wanted: 1, Numbers: uint8(len(c.args))}
	if c.replaces {
		r.Flags = rowNotZero
	}
	for i, a := range c.args {
		at := uint8(i + 1)
		switch {
		case a.kind == argAddress:
			r.Address, r.Length = at, at+1
		case a.kind == argAddressOut:
			r.Address, r.Length = at, at+1
			r.Flags |= rowAddressOut
		case a.kind == argPair:
			r.Address = at
			r.Flags |= rowAddressOut
		case a.kind != argPath:
		case r.First == 0:
			r.First = at
		default:
			r.Second = at
		}
	}
	return r
}
