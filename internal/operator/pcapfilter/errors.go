package pcapfilter

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sonde-operator/sonde/internal/wire/text"
)

const (
	// maxMessage bounds the text of a SyntaxError in bytes; it goes into
	// conditions, events and admission answers.
	maxMessage = 512
	// maxQuoted bounds the part of the user's expression in an error, in bytes.
	maxQuoted = 80
	// maxToken bounds the word in an error that libpcap did not expect, in bytes.
	maxToken = 40
	// longWord is the length in bytes from which libpcap may refuse to copy a word, which it calls out of memory.
	longWord = 1000
)

// SyntaxError says that an expression cannot be used as a filter. It is a mistake of the user, and final for this text.
// Every other error of this package is a failure of the operator or the machine.
type SyntaxError struct {
	// Expression is the refused text, truncated to MaxExpressionBytes.
	Expression string
	// Offset is the byte of the expression that the message is about, or -1.
	Offset int
	// Message is one line without control characters, at most 512 bytes. It says where the mistake is and what to write
	// instead, if that is known.
	Message string
	// Exhausted means that the compilation reached its Limits.
	Exhausted bool
}

func newSyntaxError(expression, format string, args ...any) *SyntaxError {
	return &SyntaxError{
		Expression: text.Truncate(expression, MaxExpressionBytes), Offset: -1,
		Message: text.OneLine(fmt.Sprintf(format, args...), maxMessage),
	}
}

// Refused returns a SyntaxError that another process has reported.
func Refused(expression string, offset int, message string) *SyntaxError {
	e := newSyntaxError(expression, "%s", message)
	if offset >= 0 && offset < len(e.Expression) {
		e.Offset = offset
	}
	return e
}

// syntaxErrorAt names the character at offset. Users count from 1.
func syntaxErrorAt(expression string, offset int, format string, args ...any) *SyntaxError {
	at := fmt.Sprintf("at character %d: ", utf8.RuneCountInString(expression[:offset])+1)
	e := newSyntaxError(expression, at+format, args...)
	e.Offset = offset
	return e
}

// Error returns the message after the expression, or 80 bytes of it around the mistake.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("filter %s: %s", strconv.QuoteToASCII(excerpt(e.Expression, e.Offset)), e.Message)
}

// excerpt returns at most maxQuoted bytes of an expression, with the byte at offset among them.
func excerpt(expression string, offset int) string {
	if offset < maxQuoted/2 || len(expression) <= maxQuoted {
		return text.Ellipsis(expression, maxQuoted)
	}
	for offset -= maxQuoted / 2; !utf8.RuneStart(expression[offset]); {
		offset++
	}
	return "..." + text.Ellipsis(expression[offset:], maxQuoted)
}

// shorter is the advice in messages about filters that are too complex.
const shorter = "write it shorter, e.g. with net or portrange instead of long lists"

// refusal returns the error for a compilation without a program. trap is the reason why the module ended, if it did.
func refusal(expression string, res result, trap error) *SyntaxError {
	message := res.errorText
	switch {
	case res.steps == 0:
		return exhausted(expression, "takes too long")
	case res.lookup != lookupNone:
		return syntaxErrorNear(expression, res, res.lookupName, nameRefusal(res.lookup, res.lookupName))
	case strings.Contains(message, "out of memory") && res.tokenEnd-res.token >= longWord:
		return syntaxErrorNear(expression, res, "", fmt.Sprintf("a word of %d bytes is longer than any that libpcap knows", res.tokenEnd-res.token))
	case strings.Contains(message, "out of memory"), strings.HasPrefix(message, "malloc"), strings.HasPrefix(message, "not enough core"):
		return exhausted(expression, "needs too much memory")
	case message != "":
		return syntaxErrorNear(expression, res, message, withHint(expression, place(expression, res, message)))
	case trap != nil && (strings.Contains(trap.Error(), "stack overflow") || strings.Contains(trap.Error(), "out of bounds memory access")):
		return newSyntaxError(expression, "filter is too complex: its parts are nested too deeply, %s", shorter)
	default:
		return newSyntaxError(expression, "libpcap ended without a reason, which is a bug: write the filter in another way, or shorter")
	}
}

func exhausted(expression, what string) *SyntaxError {
	e := newSyntaxError(expression, "filter is too complex: its compilation %s: %s", what, shorter)
	e.Exhausted = true
	return e
}

// place names in libpcap's message for all syntax errors the token that it did not expect.
func place(expression string, res result, message string) string {
	switch {
	case !strings.HasSuffix(message, "syntax error") || int(res.tokenEnd) > len(expression) || res.token > res.tokenEnd:
		return message
	case res.token == res.tokenEnd:
		return message + " at the end"
	default:
		return fmt.Sprintf("%s at %s", message, strconv.QuoteToASCII(text.Ellipsis(expression[res.token:res.tokenEnd], maxToken)))
	}
}

// syntaxErrorNear gives the error the place of the last word that libpcap had read and about names. libpcap may have read
// one token beyond a mistake. If it complains when it has read everything, the mistake may be anywhere.
func syntaxErrorNear(expression string, res result, about, message string) *SyntaxError {
	end := min(int(res.tokenEnd), len(expression))
	at := min(int(res.token), end)
	if !strings.Contains(about, "syntax error") {
		if word := lastWord(expression[:end], about); word >= 0 {
			at = word
		} else if at == end {
			return newSyntaxError(expression, "%s", message)
		}
	}
	return syntaxErrorAt(expression, at, "%s", message)
}

var words = regexp.MustCompile(`[^\s()!&|<>=\[\]\\]{2,}|[0-9]`)

// lastWord returns where the last word of text begins that about has among its own, or -1.
func lastWord(text, about string) int {
	known := words.FindAllString(strings.NewReplacer("'", " ", `"`, " ", ",", " ").Replace(about), -1)
	for _, at := range slices.Backward(words.FindAllStringIndex(text, -1)) {
		if slices.Contains(known, text[at[0]:at[1]]) {
			return at[0]
		}
	}
	return -1
}

// lookAlikes are characters that programs put in place of ASCII, by what to type.
var lookAlikes = map[rune]string{
	'\u00a0': "a no-break space: type a blank", '\u202f': "a narrow no-break space: type a blank", '\u2007': "a figure space: type a blank",
	'\ufeff': "a byte order mark: remove it", '\u200b': "a zero-width space: remove it", '\u200c': "invisible: remove it",
	'\u200d': "invisible: remove it", '\u2060': "invisible: remove it", '\u00ad': "a soft hyphen: remove it",
	'\u2010': "a hyphen: type -", '\u2011': "a hyphen: type -", '\u2012': "a dash: type -", '\u2013': "a dash: type -",
	'\u2014': "a dash: type -", '\u2212': "a minus sign: type -", '\u2018': "a quotation mark: remove it",
	'\u2019': "a quotation mark: remove it", '\u201c': "a quotation mark: remove it", '\u201d': "a quotation mark: remove it",
}

// retype says what to do about a character that is not ASCII.
func retype(c rune) string {
	if what, known := lookAlikes[c]; known {
		return "it is " + what
	}
	return "type this part again, because copied text may hold characters that are invisible or look like others"
}

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
