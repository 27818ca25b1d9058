package decode

import "golang.org/x/sys/unix"

// Arguments of calls on sockets.
var (
	sockfd   = Argument{"sockfd", ArgFD}
	domain   = Argument{"domain", ArgInt}
	sockType = Argument{"type", ArgHex}
	protocol = Argument{"protocol", ArgInt}
	size     = Argument{"len", ArgUint}
	addrLen  = Argument{"addrlen", ArgUint}
	addrAt   = Argument{"addrlen", ArgHex}
	message  = Argument{"msg", ArgHex}
	messages = Argument{"msgvec", ArgHex}
	howMany  = Argument{"vlen", ArgUint}
)

// sockets are the calls on sockets. Calls that move data are in the group io, so that the default groups stay cheap.
var sockets = []Call{
	{unix.SYS_SOCKET, "socket", GroupNetwork, args(domain, sockType, protocol), true, false},
	{unix.SYS_SOCKETPAIR, "socketpair", GroupNetwork, args(domain, sockType, protocol, Argument{"sv", ArgPair}), false, false},
	{unix.SYS_CONNECT, "connect", GroupNetwork, args(sockfd, Argument{"addr", ArgAddress}, addrLen), false, false},
	{unix.SYS_ACCEPT, "accept", GroupNetwork, args(sockfd, Argument{"addr", ArgAddressOut}, addrAt), true, false},
	{unix.SYS_ACCEPT4, "accept4", GroupNetwork, args(sockfd, Argument{"addr", ArgAddressOut}, addrAt, flags), true, false},
	{unix.SYS_BIND, "bind", GroupNetwork, args(sockfd, Argument{"addr", ArgAddress}, addrLen), false, false},
	{unix.SYS_LISTEN, "listen", GroupNetwork, args(sockfd, Argument{"backlog", ArgInt}), false, false},
	{unix.SYS_SHUTDOWN, "shutdown", GroupNetwork, args(sockfd, Argument{"how", ArgInt}), false, false},

	{unix.SYS_SENDTO, "sendto", GroupIO, args(sockfd, buffer, size, flags, Argument{"dest_addr", ArgAddress}, addrLen), false, false},
	{unix.SYS_RECVFROM, "recvfrom", GroupIO, args(sockfd, buffer, size, flags, Argument{"src_addr", ArgAddressOut}, addrAt), false, false},
	{unix.SYS_SENDMSG, "sendmsg", GroupIO, args(sockfd, message, flags), false, false},
	{unix.SYS_RECVMSG, "recvmsg", GroupIO, args(sockfd, message, flags), false, false},
	{unix.SYS_SENDMMSG, "sendmmsg", GroupIO, args(sockfd, messages, howMany, flags), false, false},
	{unix.SYS_RECVMMSG, "recvmmsg", GroupIO, args(sockfd, messages, howMany, flags, Argument{"timeout", ArgHex}), false, false},
}
