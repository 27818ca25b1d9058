package pcapfilter

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/text"
)

const (
	// maxMessage bounds the text of a SyntaxError in bytes; it goes into
	// conditions, events and admission answers.
	maxMessage = 512
	// maxQuoted bounds the part of the user's expression in an error, in bytes.
	maxQuoted = 80
)

// SyntaxError says that an expression cannot be used as a filter. It is a mistake of the user, and final for this text.
// Every other error of this package is a failure of the operator or the machine.
type SyntaxError struct {
	// Expression is the refused text, truncated to MaxExpressionBytes.
	Expression string
	// Message is one line without control characters, at most 512 bytes. It says what to write instead, if that is known.
	Message string
}

func newSyntaxError(expression, format string, args ...any) *SyntaxError {
	return &SyntaxError{
		Expression: text.Truncate(expression, MaxExpressionBytes),
		Message:    text.OneLine(fmt.Sprintf(format, args...), maxMessage),
	}
}

// Error returns the message after the first 80 bytes of the expression.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("filter %q: %s", text.OneLine(e.Expression, maxQuoted), e.Message)
}

// shorter is the advice in messages about filters that are too complex.
const shorter = "write it shorter, e.g. with net or portrange instead of long lists"

// hints are alternatives for the user, by a part of libpcap's message.
var hints = []struct{ message, hint string }{
	{"'gateway'", "use ether host and the gateway's MAC address, and not host its IP address"},
	{"netmask not known", "the filter is compiled for many interfaces at once, use ether broadcast or dst host and the broadcast address"},
	{"expression rejects all packets", "no packet can match, check the parts joined by and"},
	{"syntax error", "see pcap-filter(7), e.g. tcp port 80; keywords used as values need a backslash, e.g. ip proto \\icmp"},
}

// display matches the name of a field in Wireshark's display filters.
var display = regexp.MustCompile(`(?i)(^|[\s!(])(arp|dns|eth|frame|http2?|icmp|icmpv6|ip|ipv6|tcp|tls|udp|vlan)\.[a-z]`)

// withHint adds to a message what to write instead of the expression.
func withHint(expression, message string) string {
	if strings.Contains(message, "syntax error") && display.MatchString(expression) {
		return message + ": this is a display filter of Wireshark's; a capture filter is another language, pcap-filter(7), e.g. tcp port 80"
	}
	for _, h := range hints {
		if strings.Contains(message, h.message) {
			return message + ": " + h.hint
		}
	}
	return message
}
