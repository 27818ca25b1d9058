package kernel

import "github.com/sonde-operator/sonde/agents/node/ring"

// Types that the BPF programs share with this package (bpf/trace.bpf.c and its headers).
type (
	// Head is the beginning of each record.
	Head = traceRecord
	// TCP is the state of a connection.
	TCP = traceTcp
	// Socket is a socket that a process of the Pod has open.
	Socket = traceOpenSocket
	// Task is a process of the node with the cgroup that it is in.
	Task = traceTask
	// KeptFile is a word of a process's table of files, with the descriptors that stay open in a new program.
	KeptFile = traceKeptFile
	// Level is a cgroup that a process is in.
	Level = traceCgroupEntry
	// Row says which arguments of a system call a program records.
	Row = traceRow
	// Rows has the row of each call by its number. A call with a zero row is not recorded.
	Rows [512]Row
	// OpRow says which arguments of an io_uring's operation a program records.
	OpRow = traceOpRow
	// Operations has the row of each operation by its number. An operation with a zero row is not recorded.
	Operations [128]OpRow
	// OpUse says whether an operation is recorded.
	OpUse = traceOpUse
	// OpField is a place in an io_uring's entry.
	OpField = traceOpField
	// Uring is the part of a record that is about an operation of an io_uring.
	Uring = traceUringOp
	// Kind of a record.
	Kind = traceKind
	// CommandChange says whether a process began or ceased to belong to the command by an exec.
	CommandChange = traceCommandChange
	// Role of the Pod's side in a connection.
	Role = traceRole
	// Side of a connection.
	Side = traceSide
)

// Kinds of records.
const (
	KindCall       = traceKindKIND_CALL
	KindExec       = traceKindKIND_EXEC
	KindFork       = traceKindKIND_FORK
	KindExit       = traceKindKIND_EXIT
	KindFault      = traceKindKIND_FAULT
	KindSignal     = traceKindKIND_SIGNAL
	KindOOM        = traceKindKIND_OOM
	KindConnection = traceKindKIND_CONNECTION
	KindRetransmit = traceKindKIND_RETRANSMIT
	KindReset      = traceKindKIND_RESET

	KindUringSubmit = traceKindKIND_URING_SUBMIT
	KindUringEnd    = traceKindKIND_URING_END
)

// Values of CommandChange, Role and Side.
const (
	CommandBegins = traceCommandChangeCHANGE_BEGINS
	CommandEnds   = traceCommandChangeCHANGE_ENDS
	RoleClient    = traceRoleROLE_CLIENT
	RoleServer    = traceRoleROLE_SERVER
	SideLocal     = traceSideSIDE_LOCAL
	SideRemote    = traceSideSIDE_REMOTE
)

// Values of OpUse and OpField.
const (
	OpRecorded   = traceOpUseOP_RECORDED
	OpUnknown    = traceOpUseOP_UNKNOWN
	FieldOff     = traceOpFieldFIELD_OFF
	FieldAddr    = traceOpFieldFIELD_ADDR
	FieldAddrLen = traceOpFieldFIELD_ADDR_LEN
)

// Flags of a Row: ROW_... of bpf/trace.bpf.c.
const (
	// RowNotZero leaves out calls whose result is zero.
	RowNotZero = 1
	// RowAddressOut says that the kernel writes the address.
	RowAddressOut = 2
	// RowSubmits says that the result is a number of operations, which are counted.
	RowSubmits = 4
)

// LostFault is the kind under which a ring counts lost page faults: LOST_FAULT of bpf/trace.bpf.c.
const LostFault = uint32(ring.Kinds - 1)

// LostUring is the kind under which a ring counts lost records of io_urings: LOST_URING of bpf/headers/trace_uring.h.
const LostUring = uint32(ring.Kinds - 2)
