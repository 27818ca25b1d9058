// Package decode turns the kernel's records into events: the names of calls and arguments, the paths that descriptors
// stand for, sockets' addresses, containers' names. It learns these from /proc when a trace begins, and then from the
// records themselves.
package decode
