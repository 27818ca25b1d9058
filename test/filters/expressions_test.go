package filters

import (
	"fmt"
	"strings"
)

// primitives are the primitives of pcap-filter(7) that apply to a Linux Ethernet interface, by name, each with all
// forms to test. A form `a {b|c} d` stands for both alternatives. Forms that raw IP does not support are skipped there.
var primitives = map[string][]string{
	"host": {
		"{|src |dst |src or dst }host {10.0.0.1|10.0.0.2|10.0.0.9}", "src and dst host 10.0.0.9", "{ip|arp|rarp} host {10.0.0.1|10.0.0.2}",
		"{ip|arp} {src|dst} host 10.0.0.{1|2}", "dst host 192.168.7.{7|9}", "{|src |dst }host 10.1.2.3", "host 127.0.0.1",
		"{|ip6 }{|src |dst }host fd00::{1|2}", "ip6 host fd00:1::5", "host ff02::1",
	},
	"net": {
		"{|src |dst }net {10|10.1|192.168.7|172.16.0.0/12|10.0.0.0/8}", "net 10.1.0.0 mask 255.255.0.0", "{arp|ip} net 10.0.0", "net 10.0.0.0/30",
		"{|src |dst }net {fd00::/64|fd00:1::/32}", "{|src }net fe80::/10", "ip6 net ff02::/16", "net 0.0.0.0/0", "net 128.0.0.0/1", "src net 224.0.0.0/4 or dst net 224.0.0.0/4",
		"net 10.0.0.9/32", "dst net fd00::2/128",
	},
	"port": {
		"{|src |dst }port {22|53|80|443|8500}", "tcp {|src |dst }port 80", "udp {|src |dst }port 53", "udp {|src }port 80", "sctp {|src |dst }port 2905", "port 8080", "tcp port 8443", "udp port 4789",
		"udp dst port 6081", "port 80 or 443", "dst port 65000 or 1",
	},
	"portrange": {
		"{|src |dst }portrange {1-1023|8000-8999}", "{tcp|udp} {|src |dst }portrange 40-9000", "sctp portrange 2900-3000", "portrange 53-53", "portrange 7999-8000",
	},
	"ip proto": {
		`ip proto {\tcp|\udp|\icmp|\igmp|\ah|\esp|\pim|\vrrp|\sctp}`, "ip proto {gre|ospf|47|89|41|4|9|8|136|255}",
		"{icmp|igmp|igrp|ah|esp|pim|vrrp|carp|sctp|tcp|udp}",
	},
	"ip6 proto":      {`ip6 proto {\tcp|\udp|\sctp|\ah|\esp|\pim|\vrrp}`, "ip6 proto {ipv6-icmp|0|43|44|60|59|41}", "icmp6"},
	"proto":          {`proto {\tcp|\udp|\icmp|\sctp|\esp|\ah|\pim|132|58}`},
	"ether proto":    {`ether proto {\ip|\ip6|\arp|\rarp|\atalk|\aarp|\decnet|\lat|\mopdl|\moprc|\stp|\ipx|\netbeui|\iso}`, "ether proto {loopback|0x88cc|0x88e5|0x8863|0x8864|0x88f7|0x6007|0x1000|1536}", "ether proto {0x42|0xfe|0xe0|0xf0}"},
	"link protocols": {"{ip|ip6|arp|rarp|decnet|lat|mopdl|moprc|sca|iso|stp|ipx|netbeui|atalk|aarp}"},
	"ether host":     {"ether host 02:00:00:00:00:0{1|2|3|4|9}", "ether src 02:00:00:00:00:0{1|3|4}", "ether dst 02:00:00:00:00:0{2|4|9}", "ether dst 02-00-00-00-00-09", "ether host 0200.0000.0003", "ether dst 01:80:c2:00:00:0e"},
	"ether broadcast and multicast": {
		"ether broadcast", "broadcast", "ether multicast", "multicast", "ip multicast", "ip6 multicast",
	},
	"decnet": {"decnet host {10.1|3.2}", "decnet src 3.2", "decnet dst {10.1|1.2}"},
	"iso":    {`iso proto {\clnp|\esis|\isis}`, "{clnp|esis|isis}"},
	"isis":   {"{l1|l2|iih|lsp|snp|csnp|psnp}", "isis proto {15|16|17|18|20}"},
	"llc":    {"llc", "llc {i|s|u|rr|rnr|rej|ui|ua|disc|sabme|test|xid|frmr|dm}"},
	"vlan": {
		"vlan", "vlan {100|200|0|4095}", "vlan 100 and {ip|ip6|tcp|port 80}", "vlan 200 and {ip|arp|udp|port 53}", "vlan and {ip6|udp|vlan|vlan 200|vlan 100 and tcp}", "vlan 100 and vlan 200 and tcp",
		"not vlan", "vlan 100 or vlan 200", "tcp or vlan 200", "vlan and vlan and vlan 300",
	},
	"mpls":  {"mpls", "mpls {1024|100|16}", "mpls 100 and mpls 1024", "mpls and {host 10.0.0.1|ip|tcp port 80}", "mpls 16 and mpls 17 and mpls 18{| and ip6}", "mpls and mpls"},
	"pppoe": {"pppoed", "pppoes", "pppoes {0x27|0x28|39}", "pppoes and {ip|ip6|tcp port 80|host 10.0.0.1}", "pppoes 0x27 and udp", "pppoes and ppp proto 0xc021"},
	"geneve": {
		"geneve", "geneve {0xb|0xc|13}", "geneve and {ip|ip6|tcp|udp port 53|host 10.0.0.1|vlan 100|net 10.0.0.0/24}", "geneve 0xb and {ip|tcp port 80}", "ip6 and udp port 6081",
	},
	"vxlan": {
		"udp port 4789 and udp[11:4] & 0xffffff = {7|8}", "udp dst port 4789 and udp[12:4] >> 8 = {7|8}", "udp port 4789 and udp[28:2] = 0x{0800|86dd}",
		"udp port 4789 and ether[50+12:2] = 0x0800",
	},
	"length": {"less {60|100}", "greater {60|100|1000}", "len {<|>|=|!=|<=|>=} 60", "len - 14 > 100", "len & 1 = 1", "len = ip[2:2] + 14", "len != ip6[4:2] + 54 and ip6"},
	"tcp flags": {
		"tcp[tcpflags] & {tcp-fin|tcp-syn|tcp-rst|tcp-push|tcp-ack|tcp-urg|tcp-ece|tcp-cwr} != 0", "tcp[13] = {2|18|20|17|16}",
		"tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn", "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 and not src and dst net 10.0", "tcp[tcpflags] == tcp-ack",
	},
	"icmp types": {
		"icmp[icmptype] = {icmp-echoreply|icmp-unreach|icmp-sourcequench|icmp-redirect|icmp-echo|icmp-routeradvert|icmp-routersolicit|icmp-timxceed|icmp-paramprob|icmp-tstamp|icmp-tstampreply|icmp-ireq|icmp-ireqreply|icmp-maskreq|icmp-maskreply}",
		"icmp[icmptype] != icmp-echo and icmp[icmptype] != icmp-echoreply", "icmp[icmpcode] = {0|1|3}", "icmp[0] = 3 and icmp[1] = 1",
	},
	"icmp6 types": {
		"icmp6[icmp6type] = {icmp6-destinationunreach|icmp6-packettoobig|icmp6-timeexceeded|icmp6-parameterproblem|icmp6-echo|icmp6-echoreply|icmp6-multicastlistenerquery|icmp6-multicastlistenerreportv1|icmp6-multicastlistenerdone|icmp6-routersolicit|icmp6-routeradvert|icmp6-neighborsolicit|icmp6-neighboradvert|icmp6-redirect|icmp6-routerrenum|icmp6-nodeinformationquery|icmp6-nodeinformationresponse|icmp6-ineighbordiscoverysolicit|icmp6-ineighbordiscoveryadvert|icmp6-multicastlistenerreportv2|icmp6-homeagentdiscoveryrequest|icmp6-homeagentdiscoveryreply|icmp6-mobileprefixsolicit|icmp6-mobileprefixadvert|icmp6-certpathsolicit|icmp6-certpathadvert|icmp6-multicastrouteradvert|icmp6-multicastroutersolicit|icmp6-multicastrouterterm}",
		"icmp6[icmp6code] = 0",
	},
	"bytes": {
		"ip[0] {=|>|!=} 69", "ip[1] = 184", "ip[1] != 0", "ip[8] {=|!=|<} 64", "ip[9] {=|>|!=} {1|6|17}", "ip[2:2] {>|<} 576", "ip[6:2] & {0x1fff|0x2000|0x8000|0x4000} {=|!=} 0", "ip[12:4] = 0x0a00000{1|2}", "ip[16:4] & 0xff000000 = 0x0a000000",
		"ip6[6] = {6|17|44|0}", "ip6[{4:2|24:4}] > 100", "ip6[7] = 64", "tcp[{0:2|2:2}] {=|>|<} 80", "tcp[4:4] = 0", "tcp[12] & 0xf0 > 0x50", "udp[{0:2|2:2}] {=|>|<=} 53", "udp[4:2] {=|>} 20",
		"arp[6:2] = {1|2}", "rarp[6:2] = 3", "sctp[{0:2|2:2}] = 2905", "igmp[0] = 0xa5", "ether[{0|5|12|13}] & 1 {=|!=} 0", "ether[12:2] {<=|>} 1500", "link[5] = {2|9}", "ether[0:4] = 0x02000000",
		"icmp[4:4] = 0", "icmp6[0] > 100", "pim[0] = 0xa5", "vrrp[0] != 0", "ip[{1400|100|60}] = 0xa5", "ether[{59|99|1300}] >= 0",
	},
	"arithmetic": {
		"ip[0] & 0xf {=|!=|>} 5", "(ip[1] & 0xfc) >> 2 = 46", "ip[4:2] % 2 = 1", "ip[4:2] & 2 = 2", "ip[4:2] ^ 0xffff < 0xff00", "ip[2:2] - 20 > 20", "ip[8] * 3 = {3|192}", "ip[2:2] / {2|3|7} > 30",
		"ip[2:2] % {3|5|7} = {0|1|2}", "ip[16] | 1 = 11", "ip[15] << 3 = {8|40}", "1 << (ip[19] & 7) = {2|4|128}", "256 >> (ip[19] & 7) = {64|128}", "ip[9] - 6 = 0", "0 - ip[8] = 0xffffffc0",
		"ip[2:2] / ip[8] = {0|1}", "ip[2:2] % ip[8] > 10", "1000 / (ip[19] - 2) > 100", "tcp[((tcp[12] & 0xf0) >> 2):1] = 0xa5", "ip[(ip[0] & 0xf) << 2:2] = {80|40000}",
		"tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)", "udp[udp[4:2] - 1] = 0xa5", "ether[ip[2:2] + 13] = 0xa5", "ip[ip[8]] = 0xa5", "ip[ip[2:2] - 1] != 0",
		"(ip[12:4] ^ ip[16:4]) & 0xff000000 = 0", "ip[12:2] + ip[16:2] > 0x1400", "ip6[4:2] * 2 + 8 > 100", "-(0 - ip[8]) = 64", "(ip[2:2] + 3) & 0xfffc != ip[2:2]", "len - ip[2:2] = 14",
		"ip[20:2] > ip[22:2]", "ip[8] >= ip[9]", "ip[8] & ip[9] != 0", "tcp[0:2] = tcp[2:2]",
	},
	"masks of all ones": {
		"ip[6:2]" + allOnes + " {=|!=} 0", "not ip[6:2]" + allOnes + " = 0", "tcp[4:4]" + allOnes + " {=|!=} 0", "udp and ip[8]" + allOnes + " != 0",
	},
	"direction": {"inbound", "outbound", "inbound and tcp", "outbound and vlan", "not inbound and udp"},
	"interface": {"ifindex 2 and tcp", "ifindex 3 or arp"},
	"combined": {
		"not tcp", "!(tcp or udp)", "tcp and not port 80", "tcp || udp && port 53", "host 10.0.0.1 and (tcp or udp) and not port 53", "not host 10.0.0.1 and 10.0.0.2",
		"ip and (src net 10.0.0.0/8 or dst port 53)", "ip host 10.0.0.1 and not 10.0.0.2", "ip6 and not icmp6 and not ip6 multicast", "(ether host 02:00:00:00:00:01 and not host 10.0.0.1) or igmp",
		"(vlan 100 and tcp) or udp", "tcp or (vlan and udp)", "port 80 or port 81 or port 82 or port 443 or port 8080 or port 8500", "tcp or geneve",
		"src host 10.0.0.1 and dst host 10.0.0.2 and tcp src portrange 30000-50000 and tcp dst port 80 and tcp[tcpflags] & tcp-syn != 0",
	},
}

// allOnes is a mask that changes nothing. Debian's libpcap takes "A & 0xffffffff != 0" for always true; ours has the fix.
const allOnes = " & 0xffffffff"

// onlyEthernet reports whether a form asks for something that raw IP lacks, or has elsewhere, although libpcap compiles
// the form for it.
func onlyEthernet(text string) bool {
	return strings.Contains(text, "ether[") || strings.Contains(text, "link[") || strings.Contains(text, "arp")
}

// forms expands a form into all of its alternatives.
func forms(text string) []string {
	before, rest, found := strings.Cut(text, "{")
	if !found {
		return []string{text}
	}
	choice, after, found := strings.Cut(rest, "}")
	if !found {
		panic(fmt.Sprintf("%q has no closing brace", text))
	}
	var all []string
	for alternative := range strings.SplitSeq(choice, "|") {
		for _, end := range forms(after) {
			all = append(all, before+alternative+end)
		}
	}
	return all
}
