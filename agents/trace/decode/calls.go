package decode

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// Group is a group of calls, as named in a Trace's events.
type Group string

// The groups.
const (
	GroupProcess Group = "process"
	GroupFile    Group = "file"
	GroupIO      Group = "io"
	GroupMemory  Group = "memory"
	GroupSignal  Group = "signal"
	GroupNetwork Group = "network"
)

// ArgKind says what an argument's number means.
type ArgKind uint8

// Kinds of arguments.
const (
	ArgInt    ArgKind = iota // signed, 32 bits
	ArgUint                  // unsigned
	ArgOffset                // signed, 64 bits
	ArgHex                   // bits or an address
	ArgFD                    // an open file
	ArgDir                   // an open directory that the next path starts from, or AT_FDCWD
	ArgPath                  // a string in the process's memory

	// For the following kinds the tracer records the memory at the address, not the number. The argument after
	// ArgAddress is its length; after ArgAddressOut it points to the length.
	ArgAddress    // a socket address in the process's memory
	ArgAddressOut // a socket address that the kernel writes there, if the call succeeds
	ArgPair       // two descriptors that the kernel writes

	// ArgMemory is an address whose memory is recorded, too. The argument after it is the length.
	ArgMemory
)

// Argument of a call: its name is the kernel's (man 2).
type Argument struct {
	Name string
	Kind ArgKind
}

// Call is one system call as the tracer knows it.
type Call struct {
	Number uint32
	Name   string
	Group  Group
	Args   []Argument
	// returnsFD says that the result is a new file descriptor for the path, or for a copy of fd.
	returnsFD bool
	// skipsZero leaves out results of zero. For fork that is the child's return and for exec the new program's: the
	// events fork and exec record them.
	skipsZero bool
}

func args(list ...Argument) []Argument { return list }

// linkText is the name of the argument that is the text of a symbolic link.
const linkText = "target"

// Arguments that many calls have.
var (
	fd      = Argument{"fd", ArgFD}
	dir     = Argument{"dirfd", ArgDir}
	pathArg = Argument{"pathname", ArgPath}
	flags   = Argument{"flags", ArgHex}
	mode    = Argument{"mode", ArgHex}
	buffer  = Argument{"buf", ArgHex}
	count   = Argument{"count", ArgUint}
	offset  = Argument{"offset", ArgOffset}
	vector  = Argument{"iov", ArgHex}
	pieces  = Argument{"iovcnt", ArgUint}

	aioContext  = Argument{"ctx_id", ArgHex}
	leastEvents = Argument{"min_nr", ArgOffset}
	mostEvents  = Argument{"nr", ArgOffset}
	events      = Argument{"events", ArgHex}
	timeout     = Argument{"timeout", ArgHex}

	linkTarget = Argument{linkText, ArgPath}

	memoryOfProcess = args(
		Argument{"pid", ArgInt}, Argument{"local_iov", ArgHex}, Argument{"liovcnt", ArgUint}, Argument{"remote_iov", ArgHex},
		Argument{"riovcnt", ArgUint}, flags,
	)
)

// common are the calls of every architecture. Old calls without a directory descriptor are in calls_amd64.go.
var common = []Call{
	{unix.SYS_EXECVE, "execve", GroupProcess, args(pathArg), false, true},
	{unix.SYS_EXECVEAT, "execveat", GroupProcess, args(dir, pathArg, Argument{"argv", ArgHex}, Argument{"envp", ArgHex}, flags), false, true},
	{unix.SYS_CLONE, "clone", GroupProcess, args(flags), false, true},
	{unix.SYS_CLONE3, "clone3", GroupProcess, args(Argument{"cl_args", ArgHex}, Argument{"size", ArgUint}), false, true},

	{unix.SYS_OPENAT, "openat", GroupFile, args(dir, pathArg, flags, mode), true, false},
	{unix.SYS_OPENAT2, "openat2", GroupFile, args(dir, pathArg, Argument{"how", ArgMemory}, Argument{"size", ArgUint}), true, false},
	{unix.SYS_CLOSE, "close", GroupFile, args(fd), false, false},
	{unix.SYS_CLOSE_RANGE, "close_range", GroupFile, args(Argument{"first", ArgUint}, Argument{"last", ArgUint}, flags), false, false},
	{unix.SYS_DUP, "dup", GroupFile, args(Argument{"oldfd", ArgFD}), true, false},
	{unix.SYS_DUP3, "dup3", GroupFile, args(Argument{"oldfd", ArgFD}, Argument{"newfd", ArgInt}, flags), true, false},
	{unix.SYS_FCNTL, "fcntl", GroupFile, args(fd, Argument{"cmd", ArgInt}, Argument{"arg", ArgHex}), false, false},
	{unix.SYS_FSTAT, "fstat", GroupFile, args(fd), false, false},
	{fstatat, fstatatName, GroupFile, args(dir, pathArg, Argument{"statbuf", ArgHex}, flags), false, false},
	{unix.SYS_STATX, "statx", GroupFile, args(dir, pathArg, flags, Argument{"mask", ArgHex}), false, false},
	{unix.SYS_FACCESSAT, "faccessat", GroupFile, args(dir, pathArg, mode), false, false},
	{unix.SYS_FACCESSAT2, "faccessat2", GroupFile, args(dir, pathArg, mode, flags), false, false},
	{unix.SYS_READLINKAT, "readlinkat", GroupFile, args(dir, pathArg), false, false},
	{unix.SYS_UNLINKAT, "unlinkat", GroupFile, args(dir, pathArg, flags), false, false},
	{unix.SYS_RENAMEAT2, "renameat2", GroupFile, args(Argument{"olddirfd", ArgDir}, Argument{"oldpath", ArgPath}, Argument{"newdirfd", ArgDir}, Argument{"newpath", ArgPath}, flags), false, false},
	{unix.SYS_RENAMEAT, "renameat", GroupFile, args(Argument{"olddirfd", ArgDir}, Argument{"oldpath", ArgPath}, Argument{"newdirfd", ArgDir}, Argument{"newpath", ArgPath}), false, false},
	{unix.SYS_MKDIRAT, "mkdirat", GroupFile, args(dir, pathArg, mode), false, false},
	{unix.SYS_LINKAT, "linkat", GroupFile, args(Argument{"olddirfd", ArgDir}, Argument{"oldpath", ArgPath}, Argument{"newdirfd", ArgDir}, Argument{"newpath", ArgPath}, flags), false, false},
	{unix.SYS_SYMLINKAT, "symlinkat", GroupFile, args(linkTarget, Argument{"newdirfd", ArgDir}, Argument{"linkpath", ArgPath}), false, false},
	{unix.SYS_FCHMODAT, "fchmodat", GroupFile, args(dir, pathArg, mode), false, false},
	{unix.SYS_FCHMOD, "fchmod", GroupFile, args(fd, mode), false, false},
	{unix.SYS_FCHOWNAT, "fchownat", GroupFile, args(dir, pathArg, Argument{"owner", ArgInt}, Argument{"group", ArgInt}, flags), false, false},
	{unix.SYS_FCHOWN, "fchown", GroupFile, args(fd, Argument{"owner", ArgInt}, Argument{"group", ArgInt}), false, false},
	{unix.SYS_TRUNCATE, "truncate", GroupFile, args(pathArg, Argument{"length", ArgOffset}), false, false},
	{unix.SYS_FTRUNCATE, "ftruncate", GroupFile, args(fd, Argument{"length", ArgOffset}), false, false},
	{unix.SYS_FSYNC, "fsync", GroupFile, args(fd), false, false},
	{unix.SYS_FDATASYNC, "fdatasync", GroupFile, args(fd), false, false},
	{unix.SYS_CHDIR, "chdir", GroupFile, args(pathArg), false, false},
	{unix.SYS_FCHDIR, "fchdir", GroupFile, args(fd), false, false},
	{unix.SYS_GETDENTS64, "getdents64", GroupFile, args(fd, Argument{"dirp", ArgHex}, count), false, false},

	{unix.SYS_READ, "read", GroupIO, args(fd, buffer, count), false, false},
	{unix.SYS_WRITE, "write", GroupIO, args(fd, buffer, count), false, false},
	{unix.SYS_PREAD64, "pread64", GroupIO, args(fd, buffer, count, offset), false, false},
	{unix.SYS_PWRITE64, "pwrite64", GroupIO, args(fd, buffer, count, offset), false, false},
	{unix.SYS_READV, "readv", GroupIO, args(fd, vector, pieces), false, false},
	{unix.SYS_WRITEV, "writev", GroupIO, args(fd, vector, pieces), false, false},
	{unix.SYS_PREADV, "preadv", GroupIO, args(fd, vector, pieces, offset), false, false},
	{unix.SYS_PWRITEV, "pwritev", GroupIO, args(fd, vector, pieces, offset), false, false},
	{unix.SYS_PREADV2, "preadv2", GroupIO, args(fd, vector, pieces, offset, Argument{"offset_high", ArgOffset}, flags), false, false},
	{unix.SYS_PWRITEV2, "pwritev2", GroupIO, args(fd, vector, pieces, offset, Argument{"offset_high", ArgOffset}, flags), false, false},
	{unix.SYS_SENDFILE, "sendfile", GroupIO, args(Argument{"out_fd", ArgFD}, Argument{"in_fd", ArgFD}, Argument{"offset", ArgHex}, count), false, false},
	{unix.SYS_SPLICE, "splice", GroupIO, args(Argument{"fd_in", ArgFD}, Argument{"off_in", ArgHex}, Argument{"fd_out", ArgFD}, Argument{"off_out", ArgHex}, Argument{"len", ArgUint}, flags), false, false},
	{unix.SYS_COPY_FILE_RANGE, "copy_file_range", GroupIO, args(Argument{"fd_in", ArgFD}, Argument{"off_in", ArgHex}, Argument{"fd_out", ArgFD}, Argument{"off_out", ArgHex}, Argument{"len", ArgUint}, flags), false, false},
	{unix.SYS_VMSPLICE, "vmsplice", GroupIO, args(fd, vector, Argument{"nr_segs", ArgUint}, flags), false, false},
	{unix.SYS_TEE, "tee", GroupIO, args(Argument{"fd_in", ArgFD}, Argument{"fd_out", ArgFD}, Argument{"len", ArgUint}, flags), false, false},
	{unix.SYS_PROCESS_VM_READV, "process_vm_readv", GroupIO, memoryOfProcess, false, false},
	{unix.SYS_PROCESS_VM_WRITEV, "process_vm_writev", GroupIO, memoryOfProcess, false, false},
	{unix.SYS_IO_SETUP, "io_setup", GroupIO, args(Argument{"nr_events", ArgUint}, Argument{"ctx_idp", ArgHex}), false, false},
	{unix.SYS_IO_DESTROY, "io_destroy", GroupIO, args(aioContext), false, false},
	{unix.SYS_IO_SUBMIT, "io_submit", GroupIO, args(aioContext, Argument{"nr", ArgOffset}, Argument{"iocbpp", ArgHex}), false, false},
	{unix.SYS_IO_CANCEL, "io_cancel", GroupIO, args(aioContext, Argument{"iocb", ArgHex}, Argument{"result", ArgHex}), false, false},
	{unix.SYS_IO_GETEVENTS, "io_getevents", GroupIO, args(aioContext, leastEvents, mostEvents, events, timeout), false, false},
	{unix.SYS_IO_PGETEVENTS, "io_pgetevents", GroupIO, args(aioContext, leastEvents, mostEvents, events, timeout, Argument{"usig", ArgHex}), false, false},
	{unix.SYS_IO_URING_SETUP, "io_uring_setup", GroupIO, args(Argument{"entries", ArgUint}, Argument{"params", ArgHex}), false, false},
	{unix.SYS_IO_URING_REGISTER, "io_uring_register", GroupIO, args(fd, Argument{"opcode", ArgUint}, Argument{"arg", ArgHex}, Argument{"nr_args", ArgUint}), false, false},
	{unix.SYS_IO_URING_ENTER, "io_uring_enter", GroupIO, args(fd, Argument{"to_submit", ArgUint}, Argument{"min_complete", ArgUint}, flags), false, false},
}

// All returns all calls that can be recorded.
func All() []Call { return slices.Concat(common, legacy, sockets, memoryCalls, signalCalls) }

// AllGroups returns the groups of all calls.
func AllGroups() []Group {
	var all []Group
	for _, c := range All() {
		if !slices.Contains(all, c.Group) {
			all = append(all, c.Group)
		}
	}
	return all
}

// Table has calls by their numbers; nil is one that is not recorded.
type Table [len(kernel.Rows{})]*Call

// Calls returns the calls of the groups.
func Calls(groups []Group) *Table {
	found := &Table{}
	all := All()
	for i := range all {
		if c := &all[i]; slices.Contains(groups, c.Group) {
			found[c.Number] = c
		}
	}
	return found
}

// Rows are the table as the BPF programs have it.
func (t *Table) Rows() (rows kernel.Rows) {
	for n, c := range t {
		if c != nil {
			rows[n] = c.row()
		}
	}
	return rows
}

// onSocket reports whether the call's address names its socket better than the descriptor does.
func (c *Call) onSocket() bool { return c.Group == GroupNetwork || c.Number == unix.SYS_SENDTO }

func (c *Call) row() kernel.Row {
	r := kernel.Row{Wanted: 1, Numbers: uint8(len(c.Args))}
	if c.skipsZero {
		r.Flags = kernel.RowNotZero
	}
	if c.Number == unix.SYS_IO_SUBMIT {
		r.Flags = kernel.RowSubmits
	}
	for i, a := range c.Args {
		at := uint8(i + 1)
		switch {
		case a.Kind == ArgAddress || a.Kind == ArgMemory:
			r.Address, r.Length = at, at+1
		case a.Kind == ArgAddressOut:
			r.Address, r.Length = at, at+1
			r.Flags |= kernel.RowAddressOut
		case a.Kind == ArgPair:
			r.Address = at
			r.Flags |= kernel.RowAddressOut
		case a.Kind != ArgPath:
		case r.First == 0:
			r.First = at
		default:
			r.Second = at
		}
	}
	return r
}
