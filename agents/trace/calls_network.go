package trace

import "golang.org/x/sys/unix"

// Arguments of calls on sockets.
var (
	sockfd   = argument{"sockfd", argFD}
	domain   = argument{"domain", argInt}
	sockType = argument{"type", argHex}
	protocol = argument{"protocol", argInt}
	size     = argument{"len", argUint}
	addrLen  = argument{"addrlen", argUint}
	addrAt   = argument{"addrlen", argHex}
	message  = argument{"msg", argHex}
	messages = argument{"msgvec", argHex}
	howMany  = argument{"vlen", argUint}
)

// sockets are the calls that make and use them. Where data moves the group is io, so that the default stays cheap.
var sockets = []call{
	{unix.SYS_SOCKET, "socket", GroupNetwork, sig(domain, sockType, protocol), true, false},
	{unix.SYS_SOCKETPAIR, "socketpair", GroupNetwork, sig(domain, sockType, protocol, argument{"sv", argPair}), false, false},
	{unix.SYS_CONNECT, "connect", GroupNetwork, sig(sockfd, argument{"addr", argAddress}, addrLen), false, false},
	{unix.SYS_ACCEPT, "accept", GroupNetwork, sig(sockfd, argument{"addr", argAddressOut}, addrAt), true, false},
	{unix.SYS_ACCEPT4, "accept4", GroupNetwork, sig(sockfd, argument{"addr", argAddressOut}, addrAt, flags), true, false},
	{unix.SYS_BIND, "bind", GroupNetwork, sig(sockfd, argument{"addr", argAddress}, addrLen), false, false},
	{unix.SYS_LISTEN, "listen", GroupNetwork, sig(sockfd, argument{"backlog", argInt}), false, false},
	{unix.SYS_SHUTDOWN, "shutdown", GroupNetwork, sig(sockfd, argument{"how", argInt}), false, false},

	{unix.SYS_SENDTO, "sendto", GroupIO, sig(sockfd, buffer, size, flags, argument{"dest_addr", argAddress}, addrLen), false, false},
	{unix.SYS_RECVFROM, "recvfrom", GroupIO, sig(sockfd, buffer, size, flags, argument{"src_addr", argAddressOut}, addrAt), false, false},
	{unix.SYS_SENDMSG, "sendmsg", GroupIO, sig(sockfd, message, flags), false, false},
	{unix.SYS_RECVMSG, "recvmsg", GroupIO, sig(sockfd, message, flags), false, false},
	{unix.SYS_SENDMMSG, "sendmmsg", GroupIO, sig(sockfd, messages, howMany, flags), false, false},
	{unix.SYS_RECVMMSG, "recvmmsg", GroupIO, sig(sockfd, messages, howMany, flags, argument{"timeout", argHex}), false, false},
}
