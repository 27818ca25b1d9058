/* Linux ABI: offsets at which a socket filter loads what is not in the frame. */
#ifndef SONDE_LINUX_FILTER_H
#define SONDE_LINUX_FILTER_H

#define SKF_AD_OFF (-0x1000)
#define SKF_AD_PROTOCOL 0
#define SKF_AD_PKTTYPE 4
#define SKF_AD_IFINDEX 8
#define SKF_AD_VLAN_TAG 44
#define SKF_AD_VLAN_TAG_PRESENT 48

#endif
