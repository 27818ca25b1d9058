package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Values of --color.
const (
	colourAuto   = "auto"
	colourAlways = "always"
	colourNever  = "never"
)

var colourModes = []string{colourAuto, colourAlways, colourNever}

// colourFlag is the flag --color. It implements pflag.Value.
type colourFlag struct{ when string }

// String returns the value.
func (c *colourFlag) String() string { return c.when }

// Set accepts one of colourModes.
func (c *colourFlag) Set(s string) error {
	if !slices.Contains(colourModes, s) {
		return fmt.Errorf("write %s", strings.Join(colourModes, ", "))
	}
	c.when = s
	return nil
}

// Type is the name of the type in help texts.
func (c *colourFlag) Type() string { return "string" }

func (c *colourFlag) add(cmd *cobra.Command) {
	c.when = colourAuto
	cmd.Flags().Var(c, "color", "When to colour lines: auto (on a terminal, unless NO_COLOR is set), always or never")
}

// enabled reports whether to colour lines on standard output.
func (c *colourFlag) enabled(p *plugin) bool {
	if c.when == colourAuto || c.when == "" {
		return p.colour
	}
	return c.when == colourAlways
}
