package pcapfilter

import "fmt"

// lookup is the kind of name that libpcap wanted to look up outside its memory.
// Keep the values equal to enum lookup in wasm/shim.c.
type lookup uint32

const (
	lookupNone lookup = iota
	lookupHost
	lookupService
	lookupNetwork
	lookupEther
)

// services has IANA's port numbers for the most common service names, so that the refusal of a name can give its number.
var services = map[string]uint16{
	"ftp-data": 20, "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "dns": 53,
	"bootps": 67, "bootpc": 68, "dhcp": 67, "tftp": 69, "http": 80, "kerberos": 88, "pop3": 110,
	"sunrpc": 111, "ntp": 123, "netbios-ns": 137, "netbios-ssn": 139, "imap": 143, "imap2": 143,
	"snmp": 161, "snmp-trap": 162, "bgp": 179, "ldap": 389, "https": 443, "microsoft-ds": 445,
	"isakmp": 500, "syslog": 514, "submission": 587, "ldaps": 636, "domain-s": 853, "rsync": 873,
	"imaps": 993, "pop3s": 995, "socks": 1080, "ms-sql-s": 1433, "mqtt": 1883, "nfs": 2049,
	"etcd-client": 2379, "etcd-server": 2380, "mysql": 3306, "sip": 5060, "sip-tls": 5061,
	"mdns": 5353, "postgresql": 5432, "postgres": 5432, "amqps": 5671, "amqp": 5672, "x11": 6000,
	"redis": 6379, "kubernetes": 6443, "http-alt": 8080, "kafka": 9092, "memcached": 11211,
	"mongodb": 27017, "vxlan": 4789, "geneve": 6081, "wireguard": 51820, "elasticsearch": 9200,
}

// nameRefusal says what to write instead of a name that needs DNS or a file of the machine. The sandbox has neither, and
// their answers would depend on the machine that compiles the filter.
func nameRefusal(kind lookup, name string) string {
	const reason = "cannot be resolved here"
	switch kind {
	case lookupHost:
		return fmt.Sprintf("host name %q %s: use the address, e.g. host 10.0.0.1", name, reason)
	case lookupService:
		number, example := services[name], "its number, e.g. port "
		if number == 0 {
			number = 8080
		}
		return fmt.Sprintf("service name %q %s: use %s%d", name, reason, example, number)
	case lookupNetwork:
		return fmt.Sprintf("network name %q %s: use the address, e.g. net 10.0.0.0/8", name, reason)
	case lookupEther:
		return fmt.Sprintf("ethernet name %q %s: use the address, e.g. ether host 02:00:00:00:00:01", name, reason)
	default:
		return fmt.Sprintf("name %q %s: use its number", name, reason)
	}
}
