// Package filters holds the differential test of translated filters (`make test-filters`). It compares
// agents/capture/ebpffilter with libpcap's interpreter over thousands of expressions and packets.
package filters
