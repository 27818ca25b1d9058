// Package carrier is the unprivileged half of an intercept on a Pod's node. It holds the listening sockets of the Pod's network
// namespace, accepts the connections that the opener redirects to them, and decides where each goes: to the app in the Pod, or
// through Stowaway to a developer's machine.
//
// HTTP/1 is forwarded as the bytes that were received. The carrier only finds where each message begins and ends. If two parsers
// could disagree about that, the whole connection belongs to the app from there on.
//
// One connection has up to three goroutines. The first reads the peer and writes requests. One for the app and one for the
// developer's machine read responses and write to the peer. Requests are handled one after another, so only one of them writes.
package carrier
