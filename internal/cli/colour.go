package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// When lines are coloured.
const (
	colourAuto   = "auto"
	colourAlways = "always"
	colourNever  = "never"
)

var colourWhen = []string{colourAuto, colourAlways, colourNever}

// colourFlag is --color, as other programs spell it. It is a pflag.Value.
type colourFlag struct{ when string }

// String returns when.
func (c *colourFlag) String() string { return c.when }

// Set takes one of colourWhen.
func (c *colourFlag) Set(s string) error {
	if !slices.Contains(colourWhen, s) {
		return fmt.Errorf("write %s", strings.Join(colourWhen, ", "))
	}
	c.when = s
	return nil
}

// Type is shown in the help.
func (c *colourFlag) Type() string { return "string" }

func (c *colourFlag) add(cmd *cobra.Command) {
	c.when = colourAuto
	cmd.Flags().Var(c, "color", "When to colour lines: auto (on a terminal, unless NO_COLOR is set), always or never")
}

// of the plugin's standard output.
func (c *colourFlag) of(p *plugin) bool {
	if c.when == colourAuto || c.when == "" {
		return p.colour
	}
	return c.when == colourAlways
}
