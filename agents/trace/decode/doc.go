// Package decode turns the kernel's records into events: the names of calls and arguments, the paths that descriptors
// stand for, sockets' addresses, containers' names. It reads these from /proc when a trace begins, and then from the
// records.
package decode
