// Package extcap speaks the protocol by which Wireshark calls programs that capture (extcap(4) of Wireshark): it prints sentences, and
// understands the names of interfaces that Wireshark passes back.
package extcap

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// AnyWorkload is the interface whose target is an option.
const AnyWorkload = "sonde"

// Kind of an interface: how a target's kind is written, or Running.
type Kind string

// Kinds.
const (
	Any         Kind = ""
	Deployment  Kind = "deploy"
	StatefulSet Kind = "sts"
	DaemonSet   Kind = "ds"
	// Running is a PacketCapture that runs.
	Running Kind = "pcap"
)

var words = map[Kind]string{
	Deployment: "Deployment", StatefulSet: "StatefulSet", DaemonSet: "DaemonSet", Running: "running PacketCapture",
}

// Interface is an entry in Wireshark's list.
type Interface struct {
	Kind Kind
	Name string
	// Namespace is where it was found. It is not part of the value, because Wireshark keeps options by value.
	Namespace string
}

// Value is the name by which Wireshark calls the interface.
func (i Interface) Value() string {
	if i.Kind == Any {
		return AnyWorkload
	}
	return AnyWorkload + "-" + string(i.Kind) + "-" + i.Name
}

// Target is what the command capture captures, like deploy/web.
func (i Interface) Target() string { return string(i.Kind) + "/" + i.Name }

// display is what Wireshark shows.
func (i Interface) display() string {
	if i.Kind == Any {
		return "Kubernetes workload, by Sonde"
	}
	return fmt.Sprintf("%s %s/%s, by Sonde", words[i.Kind], i.Namespace, i.Name)
}

// Parse returns the interface of a value.
func Parse(value string) (Interface, error) {
	if value == AnyWorkload {
		return Interface{}, nil
	}
	kind, name, _ := strings.Cut(strings.TrimPrefix(value, AnyWorkload+"-"), "-")
	i := Interface{Kind: Kind(kind), Name: name}
	if words[i.Kind] == "" || len(validation.IsDNS1123Subdomain(name)) > 0 || i.Value() != value {
		return Interface{}, fmt.Errorf("%q is no interface of Sonde: refresh Wireshark's list of interfaces", value)
	}
	return i, nil
}

// WriteInterfaces lists interfaces.
func WriteInterfaces(w io.Writer, version string, all []Interface) error {
	return write(w, func(b *strings.Builder) {
		sentence(b, "extcap", "version", version, "help", "https://github.com/sonde-operator/sonde/blob/main/docs/guide/live-wireshark.md")
		for _, i := range all {
			sentence(b, "interface", "value", i.Value(), "display", i.display())
		}
	})
}

// WriteLinkTypes prints the link type by which Wireshark checks filters. The packets have their own in each interface of the stream.
func WriteLinkTypes(w io.Writer) error {
	return write(w, func(b *strings.Builder) { sentence(b, "dlt", "number", "1", "name", "EN10MB", "display", "Ethernet") })
}

// Option is an argument that the user can set in Wireshark.
type Option struct {
	// Call is the flag.
	Call, Display, Tooltip string
	// Type of the value in Wireshark: string, selector or unsigned.
	Type    string
	Default string
	// Range of a number, like 1,100.
	Range string
	// Values of a selector.
	Values []string
	// Required options have no empty value.
	Required bool
}

// WriteOptions prints the options of an interface.
func WriteOptions(w io.Writer, options []Option) error {
	return write(w, func(b *strings.Builder) {
		for n, o := range options {
			number := fmt.Sprint(n)
			required := ""
			if o.Required {
				required = "true"
			}
			sentence(b, "arg", "number", number, "call", o.Call, "display", o.Display, "tooltip", o.Tooltip, "type", o.Type,
				"default", o.Default, "range", o.Range, "required", required)
			for _, v := range o.Values {
				chosen := "false"
				if v == o.Default {
					chosen = "true"
				}
				sentence(b, "value", "arg", number, "value", v, "display", v, "default", chosen)
			}
		}
	})
}

// sentence appends a word with its parameters. Those without a value are left out.
func sentence(b *strings.Builder, word string, parameters ...string) {
	b.WriteString(word + " ")
	for i := 0; i < len(parameters); i += 2 {
		if v := parameters[i+1]; v != "" {
			b.WriteString("{" + parameters[i] + "=" + clean(v) + "}")
		}
	}
	b.WriteByte('\n')
}

// clean replaces what would end a parameter or a line. The protocol has no escapes.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '{' || r == '}' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

func write(w io.Writer, fill func(*strings.Builder)) error {
	var b strings.Builder
	fill(&b)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("answer Wireshark: %w", err)
	}
	return nil
}
