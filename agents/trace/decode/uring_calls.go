package decode

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// uringPrefix begins the names of operations of io_urings. Readers of traces accept letters, digits and underscores.
const uringPrefix = "io_uring_"

// EventUring is the name of io_urings among events that a kernel cannot record, and of their lost records.
const EventUring = "io_uring"

// EventCompletion is a result of an io_uring whose operation is not known.
const EventCompletion = uringPrefix + "completion"

// entryField is a field of an io_uring's entry (struct io_uring_sqe).
type entryField uint8

const (
	entryFD entryField = iota
	entryOff
	entryAddr
	entryLen
	entryFlags // the operation's own
	entryIndex // file_index and splice_fd_in
	entryAddrLen
)

// operation is one kind of operation of an io_uring. Its Call has the number of the system call that does the same.
type operation struct {
	Call
	fields []entryField // of the arguments
}

func from(fields ...entryField) []entryField { return fields }

var (
	asPread   = from(entryFD, entryAddr, entryLen, entryOff)
	asMessage = from(entryFD, entryAddr, entryFlags)
	asPath    = from(entryFD, entryAddr, entryFlags)
	asSend    = from(entryFD, entryAddr, entryLen, entryFlags, entryOff, entryAddrLen)
	asRecv    = from(entryFD, entryAddr, entryLen, entryFlags)
	asConnect = from(entryFD, entryAddr, entryOff)
)

func readOp(name string, number uint32) operation {
	return operation{Call{number, name, GroupIO, args(fd, buffer, count, offset), false, false}, asPread}
}

func vectorOp(name string, number uint32) operation {
	return operation{Call{number, name, GroupIO, args(fd, vector, pieces, offset), false, false}, asPread}
}

func sendOp(name string) operation {
	return operation{Call{unix.SYS_SENDTO, name, GroupIO, args(sockfd, buffer, size, flags, Argument{"dest_addr", ArgAddress}, addrLen), false, false}, asSend}
}

func messageOp(name string, number uint32) operation {
	return operation{Call{number, name, GroupIO, args(sockfd, message, flags), false, false}, asMessage}
}

func recvOp(name string) operation {
	return operation{Call{unix.SYS_RECVFROM, name, GroupIO, args(sockfd, buffer, size, flags), false, false}, asRecv}
}

// operations by their numbers (enum io_uring_op in include/uapi/linux/io_uring.h, Linux 6.18).
var operations = []operation{
	1:  vectorOp("readv", unix.SYS_PREADV),
	2:  vectorOp("writev", unix.SYS_PWRITEV),
	3:  {Call{unix.SYS_FSYNC, "fsync", GroupFile, args(fd, flags), false, false}, from(entryFD, entryFlags)},
	4:  readOp("read_fixed", unix.SYS_PREAD64),
	5:  readOp("write_fixed", unix.SYS_PWRITE64),
	9:  messageOp("sendmsg", unix.SYS_SENDMSG),
	10: messageOp("recvmsg", unix.SYS_RECVMSG),
	// The peer's address is not recorded: the kernel writes it later.
	13: {Call{unix.SYS_ACCEPT4, "accept", GroupNetwork, args(sockfd, Argument{"addr", ArgHex}, addrAt, flags), true, false}, from(entryFD, entryAddr, entryOff, entryFlags)},
	16: {Call{unix.SYS_CONNECT, "connect", GroupNetwork, args(sockfd, Argument{"addr", ArgAddress}, addrLen), false, false}, asConnect},
	18: {Call{unix.SYS_OPENAT, "openat", GroupFile, args(dir, pathArg, flags, mode), true, false}, from(entryFD, entryAddr, entryFlags, entryLen)},
	19: {Call{unix.SYS_CLOSE, "close", GroupFile, args(fd), false, false}, from(entryFD)},
	21: {Call{unix.SYS_STATX, "statx", GroupFile, args(dir, pathArg, flags, Argument{"mask", ArgHex}), false, false}, from(entryFD, entryAddr, entryFlags, entryLen)},
	22: readOp("read", unix.SYS_PREAD64),
	23: readOp("write", unix.SYS_PWRITE64),
	25: {Call{unix.SYS_MADVISE, "madvise", GroupMemory, args(address, length, advice), false, false}, from(entryAddr, entryLen, entryFlags)},
	26: sendOp("send"),
	27: recvOp("recv"),
	28: {Call{unix.SYS_OPENAT2, "openat2", GroupFile, args(dir, pathArg, Argument{"how", ArgHex}, Argument{"size", ArgUint}), true, false}, from(entryFD, entryAddr, entryOff, entryLen)},
	30: {Call{unix.SYS_SPLICE, "splice", GroupIO, args(Argument{"fd_in", ArgFD}, Argument{"off_in", ArgOffset}, Argument{"fd_out", ArgFD}, Argument{"off_out", ArgOffset}, Argument{"len", ArgUint}, flags), false, false}, from(entryIndex, entryAddr, entryFD, entryOff, entryLen, entryFlags)},
	33: {Call{unix.SYS_TEE, "tee", GroupIO, args(Argument{"fd_in", ArgFD}, Argument{"fd_out", ArgFD}, Argument{"len", ArgUint}, flags), false, false}, from(entryIndex, entryFD, entryLen, entryFlags)},
	34: {Call{unix.SYS_SHUTDOWN, "shutdown", GroupNetwork, args(sockfd, Argument{"how", ArgInt}), false, false}, from(entryFD, entryLen)},
	35: {Call{unix.SYS_RENAMEAT2, "renameat", GroupFile, args(Argument{"olddirfd", ArgDir}, Argument{"oldpath", ArgPath}, Argument{"newdirfd", ArgDir}, Argument{"newpath", ArgPath}, flags), false, false}, from(entryFD, entryAddr, entryLen, entryOff, entryFlags)},
	36: {Call{unix.SYS_UNLINKAT, "unlinkat", GroupFile, args(dir, pathArg, flags), false, false}, asPath},
	37: {Call{unix.SYS_MKDIRAT, "mkdirat", GroupFile, args(dir, pathArg, mode), false, false}, from(entryFD, entryAddr, entryLen)},
	38: {Call{unix.SYS_SYMLINKAT, "symlinkat", GroupFile, args(linkTarget, Argument{"newdirfd", ArgDir}, Argument{"linkpath", ArgPath}), false, false}, from(entryAddr, entryFD, entryOff)},
	39: {Call{unix.SYS_LINKAT, "linkat", GroupFile, args(Argument{"olddirfd", ArgDir}, Argument{"oldpath", ArgPath}, Argument{"newdirfd", ArgDir}, Argument{"newpath", ArgPath}, flags), false, false}, from(entryFD, entryAddr, entryLen, entryOff, entryFlags)},
	45: {Call{unix.SYS_SOCKET, "socket", GroupNetwork, args(domain, sockType, protocol), true, false}, from(entryFD, entryOff, entryLen)},
	47: sendOp("send_zc"),
	48: messageOp("sendmsg_zc", unix.SYS_SENDMSG),
	49: readOp("read_multishot", unix.SYS_PREAD64),
	54: {Call{unix.SYS_DUP, "fixed_fd_install", GroupFile, args(Argument{"oldfd", ArgFD}), true, false}, from(entryFD)},
	55: {Call{unix.SYS_FTRUNCATE, "ftruncate", GroupFile, args(fd, Argument{"length", ArgOffset}), false, false}, from(entryFD, entryOff)},
	56: {Call{unix.SYS_BIND, "bind", GroupNetwork, args(sockfd, Argument{"addr", ArgAddress}, addrLen), false, false}, asConnect},
	57: {Call{unix.SYS_LISTEN, "listen", GroupNetwork, args(sockfd, Argument{"backlog", ArgInt}), false, false}, from(entryFD, entryLen)},
	58: recvOp("recv_zc"),
	60: vectorOp("readv_fixed", unix.SYS_PREADV),
	61: vectorOp("writev_fixed", unix.SYS_PWRITEV),
}

// ungrouped are the operations whose calls are in no group. One that is neither here nor in operations is unknown, and counts as
// lost.
var ungrouped = []int{
	0 /* NOP */, 6 /* POLL_ADD */, 7 /* POLL_REMOVE */, 8 /* SYNC_FILE_RANGE */, 11 /* TIMEOUT */, 12 /* TIMEOUT_REMOVE */, 14 /* ASYNC_CANCEL */, 15 /* LINK_TIMEOUT */, 17 /* FALLOCATE */, 20, /* FILES_UPDATE */
	24 /* FADVISE */, 29 /* EPOLL_CTL */, 31 /* PROVIDE_BUFFERS */, 32 /* REMOVE_BUFFERS */, 40 /* MSG_RING */, 41 /* FSETXATTR */, 42 /* SETXATTR */, 43 /* FGETXATTR */, 44 /* GETXATTR */, 46, /* URING_CMD */
	50 /* WAITID */, 51 /* FUTEX_WAIT */, 52 /* FUTEX_WAKE */, 53 /* FUTEX_WAITV */, 59 /* EPOLL_WAIT */, 62, /* PIPE */
}

// Operations that may have several results, of which only the last one has a request.
var multishot = []int{6 /* POLL_ADD */, 10 /* RECVMSG */, 11 /* TIMEOUT */, 13 /* ACCEPT */, 27 /* RECV */, 46 /* URING_CMD */, 49 /* READ_MULTISHOT */, 58 /* RECV_ZC */}

// operationOf returns the operation with a number; nil if its call is in no group, or it is unknown.
func operationOf(n int) *operation {
	if n >= len(operations) || operations[n].Name == "" {
		return nil
	}
	return &operations[n]
}

// Operations returns the operations of io_urings in the groups. A system call in no group has no operation either.
func Operations(groups []Group) (rows kernel.Operations) {
	wanted := Calls(groups)
	for n := range rows {
		switch o := operationOf(n); {
		case o == nil && !slices.Contains(ungrouped, n):
			rows[n].Use = uint8(kernel.OpUnknown)
		case o != nil && wanted[o.Number] != nil:
			rows[n] = o.row()
		}
	}
	if RecordsMoreResults(groups) {
		for _, n := range multishot { // so that their results are recognized
			rows[n].Use = uint8(kernel.OpRecorded)
		}
	}
	return rows
}

// HasOperations reports whether operations of io_urings are in one of the groups.
func HasOperations(groups []Group) bool {
	for _, row := range Operations(groups) {
		if row.Use == uint8(kernel.OpRecorded) {
			return true
		}
	}
	return false
}

// RecordsMoreResults reports whether operations of the groups may have more than one result.
func RecordsMoreResults(groups []Group) bool {
	wanted := Calls(groups)
	for _, n := range multishot {
		if o := operationOf(n); o != nil && wanted[o.Number] != nil {
			return true
		}
	}
	return false
}

func (o *operation) row() kernel.OpRow {
	fields := map[entryField]kernel.OpField{entryOff: kernel.FieldOff, entryAddr: kernel.FieldAddr, entryAddrLen: kernel.FieldAddrLen}
	r := kernel.OpRow{Use: uint8(kernel.OpRecorded)}
	for i, a := range o.Args {
		at := uint8(fields[o.fields[i]])
		switch {
		case a.Kind == ArgAddress:
			r.Address, r.Length = at, uint8(fields[o.fields[i+1]])
		case a.Kind != ArgPath:
		case r.First == 0:
			r.First = at
		default:
			r.Second = at
		}
	}
	return r
}
