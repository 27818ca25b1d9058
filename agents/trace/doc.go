// Package trace records the system calls of one Pod: BPF programs at raw tracepoints write binary records into rings in
// memory, a reader resolves what their numbers mean and writes them as text, and every call is in the text or in the
// count of what was lost. docs/adr/0008-trace-engine.md says why it is built so.
//
// It needs CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), and Linux 5.12 with BTF.
package trace
