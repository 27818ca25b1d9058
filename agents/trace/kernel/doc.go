// Package kernel is the kernel's side of a trace: it loads and attaches the BPF programs of bpf/trace.bpf.c, and reads the
// records that they write into rings. What a record's numbers mean is package decode's business.
//
// It needs CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN), and Linux 5.12 with BTF.
package kernel
