// Package capture captures the packets of one network namespace to a pcapng file, or a ring of files, with an account
// that adds up. Every packet that passed the filter between Open and the end is in a file, or is counted: as dropped,
// or as overwritten with its file.
//
// Engine is the interface of the probe. A session is one capture: it chooses a backend (session.go), follows interfaces that
// come and go (interfaces.go), and reads packets until the end (run.go).
//
//	links     lists the interfaces of a namespace and receives changes
//	backend   the interface that each backend implements
//	afpacket  the backend by packet sockets
//	tc        the backend by BPF programs at tcx or clsact; ebpffilter translates the filter for it
//	record    writes the files and the account
//
// A backend encodes packets as pcapng blocks and gives them to the recorder in batches. The recorder does not know how they
// were read.
package capture
