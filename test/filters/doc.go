// Package filters holds the differential test of translated filters (`make test-filters`): agents/capture/ebpffilter against
// libpcap's interpreter, over thousands of expressions and packets. It has no code of its own.
package filters
