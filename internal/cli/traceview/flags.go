package traceview

import (
	"strconv"
	"strings"
)

// bitNames are flags and their names. A flag of several bits comes before the flags whose bits it includes.
type bitNames []struct {
	value uint64
	name  string
}

// The numbers are from Linux's uapi headers. They are repeated here because the plugin also runs on other systems.
var (
	accessBits = bitNames{{4, "R_OK"}, {2, "W_OK"}, {1, "X_OK"}}
	atBits     = bitNames{
		{0x100, "AT_SYMLINK_NOFOLLOW"},
		{0x200, "AT_EACCESS"},
		{0x400, "AT_SYMLINK_FOLLOW"},
		{0x800, "AT_NO_AUTOMOUNT"},
		{0x1000, "AT_EMPTY_PATH"},
		{0x2000, "AT_STATX_FORCE_SYNC"},
		{0x4000, "AT_STATX_DONT_SYNC"},
	}
	unlinkBits    = bitNames{{0x200, "AT_REMOVEDIR"}}
	renameBits    = bitNames{{1, "RENAME_NOREPLACE"}, {2, "RENAME_EXCHANGE"}, {4, "RENAME_WHITEOUT"}}
	rangeBits     = bitNames{{2, "CLOSE_RANGE_UNSHARE"}, {4, "CLOSE_RANGE_CLOEXEC"}}
	spliceBits    = bitNames{{1, "SPLICE_F_MOVE"}, {2, "SPLICE_F_NONBLOCK"}, {4, "SPLICE_F_MORE"}, {8, "SPLICE_F_GIFT"}}
	rwBits        = bitNames{{1, "RWF_HIPRI"}, {2, "RWF_DSYNC"}, {4, "RWF_SYNC"}, {8, "RWF_NOWAIT"}, {0x10, "RWF_APPEND"}}
	sockBits      = bitNames{{0x80000, "SOCK_CLOEXEC"}, {0x800, "SOCK_NONBLOCK"}}
	shutdownModes = map[int64]string{0: "SHUT_RD", 1: "SHUT_WR", 2: "SHUT_RDWR"}
	msgBits       = bitNames{
		{1, "MSG_OOB"},
		{2, "MSG_PEEK"},
		{4, "MSG_DONTROUTE"},
		{0x20, "MSG_TRUNC"},
		{0x40, "MSG_DONTWAIT"},
		{0x80, "MSG_EOR"},
		{0x100, "MSG_WAITALL"},
		{0x2000, "MSG_ERRQUEUE"},
		{0x4000, "MSG_NOSIGNAL"},
		{0x8000, "MSG_MORE"},
		{0x10000, "MSG_WAITFORONE"},
		{0x4000000, "MSG_ZEROCOPY"},
		{0x20000000, "MSG_FASTOPEN"},
		{0x40000000, "MSG_CMSG_CLOEXEC"},
	}
	cloneBits = bitNames{
		{0x100, "CLONE_VM"},
		{0x200, "CLONE_FS"},
		{0x400, "CLONE_FILES"},
		{0x800, "CLONE_SIGHAND"},
		{0x1000, "CLONE_PIDFD"},
		{0x2000, "CLONE_PTRACE"},
		{0x4000, "CLONE_VFORK"},
		{0x8000, "CLONE_PARENT"},
		{0x10000, "CLONE_THREAD"},
		{0x20000, "CLONE_NEWNS"},
		{0x40000, "CLONE_SYSVSEM"},
		{0x80000, "CLONE_SETTLS"},
		{0x100000, "CLONE_PARENT_SETTID"},
		{0x200000, "CLONE_CHILD_CLEARTID"},
		{0x800000, "CLONE_UNTRACED"},
		{0x1000000, "CLONE_CHILD_SETTID"},
		{0x2000000, "CLONE_NEWCGROUP"},
		{0x4000000, "CLONE_NEWUTS"},
		{0x8000000, "CLONE_NEWIPC"},
		{0x10000000, "CLONE_NEWUSER"},
		{0x20000000, "CLONE_NEWPID"},
		{0x40000000, "CLONE_NEWNET"},
		{0x80000000, "CLONE_IO"},
	}
	commonOpenBits = bitNames{
		{0x101000, "O_SYNC"},
		{0x1000, "O_DSYNC"},
		{0x40, "O_CREAT"},
		{0x80, "O_EXCL"},
		{0x100, "O_NOCTTY"},
		{0x200, "O_TRUNC"},
		{0x400, "O_APPEND"},
		{0x800, "O_NONBLOCK"},
		{0x2000, "O_ASYNC"},
		{0x40000, "O_NOATIME"},
		{0x80000, "O_CLOEXEC"},
		{0x200000, "O_PATH"},
	}
	openBits = append(bitNames{
		{0x410000, "O_TMPFILE"}, {0x4000, "O_DIRECT"}, {0x8000, "O_LARGEFILE"}, {0x10000, "O_DIRECTORY"}, {0x20000, "O_NOFOLLOW"},
	}, commonOpenBits...)
	// The first five have other values on ARM.
	openBitsARM = append(bitNames{
		{0x404000, "O_TMPFILE"}, {0x4000, "O_DIRECTORY"}, {0x8000, "O_NOFOLLOW"}, {0x10000, "O_DIRECT"}, {0x20000, "O_LARGEFILE"},
	}, commonOpenBits...)
	fcntlCommands = map[int64]string{
		0: "F_DUPFD", 1: "F_GETFD", 2: "F_SETFD", 3: "F_GETFL", 4: "F_SETFL", 5: "F_GETLK", 6: "F_SETLK", 7: "F_SETLKW",
		8: "F_SETOWN", 9: "F_GETOWN", 36: "F_OFD_GETLK", 37: "F_OFD_SETLK", 38: "F_OFD_SETLKW", 1024: "F_SETLEASE", 1025: "F_GETLEASE",
		1030: "F_DUPFD_CLOEXEC", 1031: "F_SETPIPE_SZ", 1032: "F_GETPIPE_SZ", 1033: "F_ADD_SEALS", 1034: "F_GET_SEALS",
	}
	flagsOf = map[string]bitNames{
		"newfstatat": atBits, "fstatat": atBits, "statx": atBits, "faccessat2": atBits, "execveat": atBits, "linkat": atBits, "fchownat": atBits,
		"unlinkat": unlinkBits, "renameat2": renameBits, "close_range": rangeBits, "dup3": {{0x80000, "O_CLOEXEC"}},
		"splice": spliceBits, "preadv2": rwBits, "pwritev2": rwBits, "accept4": sockBits,
		"sendto": msgBits, "recvfrom": msgBits, "sendmsg": msgBits, "recvmsg": msgBits, "sendmmsg": msgBits, "recvmmsg": msgBits,
	}
)

// names returns first, then the names of the bits of n, and then its unknown bits as a number. Zero has no names.
func (b bitNames) names(n uint64, first ...string) string {
	all := first
	for _, one := range b {
		if n&one.value == one.value {
			all = append(all, one.name)
			n &^= one.value
		}
	}
	if n != 0 {
		all = append(all, "0x"+strconv.FormatUint(n, 16))
	}
	return strings.Join(all, "|")
}

func openFlags(n uint64, arch string) string {
	table := openBits
	if arch == "arm64" {
		table = openBitsARM
	}
	access := []string{"O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"}[n&3]
	return table.names(n&^3, access)
}

// cloneFlags names the flags of clone. Their lowest byte is the signal that the parent gets when the child exits.
func cloneFlags(n uint64) string {
	const sigchld = 17
	if n&0xff == sigchld {
		return cloneBits.names(n&^0xff, "SIGCHLD")
	}
	return cloneBits.names(n)
}
