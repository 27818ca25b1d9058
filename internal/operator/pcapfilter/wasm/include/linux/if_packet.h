/* Linux ABI: packet type of a frame that this machine sends. */
#ifndef SONDE_LINUX_IF_PACKET_H
#define SONDE_LINUX_IF_PACKET_H

#define PACKET_OUTGOING 4

#endif
