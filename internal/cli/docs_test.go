package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Each example in the documentation and in the help texts is a valid command with valid flags.
func TestExamplesAreCommands(t *testing.T) {
	texts := map[string]string{}
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../docs/*/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil || len(pages) == 0 {
			t.Fatalf("%s: %v, %v", pattern, pages, err)
		}
		for _, page := range pages {
			b, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			texts[page] = string(b)
		}
	}
	for _, c := range allCommands(exampleRoot()) {
		texts["help of "+c.CommandPath()] = c.Example
	}
	found := 0
	for where, text := range texts {
		for line := range strings.Lines(text) {
			command, ok := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "kubectl sonde ")
			if !ok || !strings.HasPrefix(line, "  ") { // not part of a sentence
				continue
			}
			found++
			if err := parsed(words(command)); err != nil {
				t.Errorf("%s: kubectl sonde %s: %v", where, command, err)
			}
		}
	}
	if found < 40 {
		t.Errorf("%d commands were found: are they written in another way now?", found)
	}
	for _, wrong := range []string{"trace deploy/web --commands nginx", "trace", "tracer deploy/web", "trace read web.ndjson --min-latency long", "stop"} {
		if parsed(words(wrong)) == nil {
			t.Errorf("%s passes for a command", wrong)
		}
	}
}

func exampleRoot() *cobra.Command {
	return newPlugin(Options{Streams: genericiooptions.NewTestIOStreamsDiscard()}, &interrupts{}).command()
}

func allCommands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, below := range c.Commands() {
		all = append(all, allCommands(below)...)
	}
	return all
}

func parsed(args []string) error {
	c, rest, err := exampleRoot().Find(args)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

// words splits a command as a shell does, up to the end of that command.
func words(command string) []string {
	var all []string
	var word strings.Builder
	quote := rune(0)
	end := func() {
		if word.Len() > 0 {
			all = append(all, word.String())
		}
		word.Reset()
	}
	for _, r := range command + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote = r
		case r == ' ' || r == '\n':
			end()
		case r == '|' || r == '&' || r == '>' || r == '#' && word.Len() == 0:
			return all
		default:
			word.WriteRune(r)
		}
	}
	return all
}
