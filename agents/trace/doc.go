// Package trace records the system calls of one Pod. BPF programs at raw tracepoints write binary records into rings
// (package kernel), which are merged by time, turned into events (package decode) and written (package output). Every call
// is either written or counted as lost. docs/adr/0008-trace-engine.md gives the reasons for this design.
//
// It needs CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), and Linux 5.12 with BTF.
package trace
