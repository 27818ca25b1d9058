// Package filters holds the differential test of translated filters (`make test-filters`): internal/ebpffilter against
// libpcap's interpreter, over thousands of expressions and packets. It has no code of its own.
package filters
