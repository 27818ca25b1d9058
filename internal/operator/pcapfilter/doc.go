// Package pcapfilter compiles pcap-filter(7) expressions to classic BPF with
// libpcap itself, and keeps libpcap away from the process: its C code is
// compiled to WebAssembly and runs in a sandbox that can reach
// nothing but its own bounded memory. docs/filters.md is the user's view,
// docs/adr/0002-filter-sandbox.md says why it is done so.
package pcapfilter
