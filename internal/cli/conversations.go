package cli

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-operator/sonde/internal/cli/conversations"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/wire/table"
)

type conversationsCommand struct {
	plugin *plugin
	top    int
	json   bool
}

func newConversations(p *plugin) *cobra.Command {
	c := &conversationsCommand{plugin: p}
	cmd := &cobra.Command{
		Use:   "conversations FILE",
		Short: "Show the busiest conversations of a pcapng file",
		Long: `Shows the busiest conversations of a pcapng file, by bytes. A is the endpoint that sent the first packet.

In a file of several Pods, the packets between two of them were captured at both, and count twice.`,
		Example: `  kubectl sonde conversations web.pcapng --top 20
  kubectl sonde capture deploy/web -n shop -o - | kubectl sonde conversations -`,
		Args: oneArgument("a FILE, or - for standard input"),
		RunE: func(_ *cobra.Command, args []string) error { return c.run(args[0]) },
	}
	cmd.Flags().IntVar(&c.top, "top", 10, "Number of conversations to show")
	cmd.Flags().BoolVar(&c.json, "json", false, "Print as JSON")
	return cmd
}

func (c *conversationsCommand) run(path string) error {
	if c.top < 1 {
		return errors.New("--top: write a number above zero")
	}
	in := c.plugin.streams.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("open the capture: %w", err)
		}
		defer f.Close()
		in = f
	}
	result, err := conversations.Read(in)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if c.json {
		return c.plugin.writeJSON(asJSON(result, c.top))
	}
	if _, err := io.WriteString(c.plugin.streams.Out, asText(result, c.top)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func asText(r conversations.Result, top int) string {
	shown := r.Conversations[:min(top, len(r.Conversations))]
	rows := [][]string{{"PROTOCOL", "A", "B", "PACKETS", "BYTES", "A->B", "B->A", "SECONDS"}}
	for _, t := range shown {
		rows = append(rows, []string{
			t.Protocol, conversations.Endpoint(t.A, t.AName), conversations.Endpoint(t.B, t.BName), strconv.FormatInt(t.Packets(), 10), live.Bytes(t.Bytes()),
			live.Bytes(t.AtoB.Bytes), live.Bytes(t.BtoA.Bytes), fmt.Sprintf("%.3f", t.Last.Sub(t.First).Seconds()),
		})
	}
	var b strings.Builder
	if len(shown) > 0 {
		b.WriteString(table.Text("lll", rows) + "\n")
	}
	fmt.Fprintf(&b, "%d of %d conversations; %d packets, %s in all.\n", len(shown), len(r.Conversations), r.Total.Packets, live.Bytes(r.Total.Bytes))
	if r.Other.Packets > 0 {
		fmt.Fprintf(&b, "%d packets, %s are of other conversations, which are not listed one by one.\n", r.Other.Packets, live.Bytes(r.Other.Bytes))
	}
	if r.Truncated {
		b.WriteString("The file ends in the middle of a packet: its writer was killed or is still running.\n")
	}
	return b.String()
}

type jsonResult struct {
	Total         conversations.Count `json:"total"`
	Conversations []jsonConversation  `json:"conversations"`
	// Count of all conversations, including those that are not shown.
	Count     int                 `json:"count"`
	Other     conversations.Count `json:"other"`
	Truncated bool                `json:"truncated"`
}

type jsonConversation struct {
	Protocol string              `json:"protocol"`
	A        jsonEndpoint        `json:"a"`
	B        jsonEndpoint        `json:"b"`
	AtoB     conversations.Count `json:"aToB"`
	BtoA     conversations.Count `json:"bToA"`
	First    time.Time           `json:"first"`
	Last     time.Time           `json:"last"`
}

type jsonEndpoint struct {
	Address string `json:"address,omitempty"`
	Port    uint16 `json:"port,omitempty"`
	Pod     string `json:"pod,omitempty"`
}

func asJSON(r conversations.Result, top int) jsonResult {
	out := jsonResult{
		Total: r.Total, Other: r.Other, Truncated: r.Truncated,
		Count: len(r.Conversations), Conversations: []jsonConversation{},
	}
	for _, t := range r.Conversations[:min(top, len(r.Conversations))] {
		out.Conversations = append(out.Conversations, jsonConversation{
			Protocol: t.Protocol, A: asEndpoint(t.A, t.AName), B: asEndpoint(t.B, t.BName),
			AtoB: t.AtoB, BtoA: t.BtoA, First: t.First, Last: t.Last,
		})
	}
	return out
}

func asEndpoint(a netip.AddrPort, pod string) jsonEndpoint {
	if !a.IsValid() {
		return jsonEndpoint{}
	}
	return jsonEndpoint{Address: a.Addr().String(), Port: a.Port(), Pod: pod}
}
