// Package handover is how an opener gives its carrier the sockets of a Pod's network namespace.
//
// The opener is privileged and parses nothing that comes from a network. The carrier has no right on the node. They talk over a
// SOCK_SEQPACKET Unix socket in a volume that both containers mount. Every message has a fixed size, and the opener accepts one
// connection, of the carrier's user alone.
//
// The opener first sends the listening sockets. After that the carrier sends requests (steer, dial), the opener answers each with a
// result, and a dial's result carries the connected socket. The opener pings every PingInterval. A carrier that does not answer
// for PingTimeout is frozen: the opener then stops steering, until the carrier answers again. After CarrierTimeout the opener ends the
// connection. An opener that does not ping for OpenerTimeout is frozen too, and the carrier ends the connection.
package handover
