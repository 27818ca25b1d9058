// Package kernel is the kernel's side of a trace: it loads and attaches the BPF programs of bpf/trace.bpf.c, and reads
// the records that they write into rings. Package decode interprets the numbers in a record.
//
// It needs CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), and Linux 5.12 with BTF.
package kernel
