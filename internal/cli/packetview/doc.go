// Package packetview sums up a packet capture for people: conversations, Pods, TCP, DNS, HTTP/1 and a timeline.
//
// It reads a file once, from the beginning to the end, in bounded memory. Its figures are defined as Wireshark defines them,
// and a test compares them with tshark's.
//
// Packets count as often as they are in the file. A connection between two captured Pods is in a merged file twice, so TCP,
// DNS and HTTP are read only at the interface that saw the conversation first.
package packetview
