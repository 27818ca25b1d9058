// Package pcapfilter compiles pcap-filter(7) expressions to classic BPF with libpcap. libpcap's C code is compiled to
// WebAssembly and runs in a sandbox that can reach only its own bounded memory. docs/filters.md is for users, and
// docs/adr/0002-filter-sandbox.md gives the reasons.
package pcapfilter
