// Package settings lets admins set the manager's flags by environment variables. OLM offers no other way to change the
// manager's settings (spec.config.env of the Subscription). The plugin's doctor names the same variables.
package settings

import (
	"flag"
	"fmt"
	"strings"
)

// Variable returns the name of the variable for a flag: SONDE_MAX_DURATION for max-duration.
func Variable(flagName string) string {
	return "SONDE_" + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// FromEnvironment sets the named flags from the variables that are set. Call it before the flags are parsed, so that
// the command line takes precedence. An error names the variable and the values that it accepts. No name may end in
// -port: Kubernetes sets SONDE_X_PORT in each Pod for a Service sonde-x.
func FromEnvironment(fs *flag.FlagSet, lookup func(string) (string, bool), names ...string) error {
	for _, name := range names {
		value, ok := lookup(Variable(name))
		if !ok {
			continue
		}
		f := fs.Lookup(name)
		if f == nil {
			return fmt.Errorf("there is no flag --%s", name)
		}
		if err := f.Value.Set(value); err != nil {
			return fmt.Errorf("%s=%q: %w; it sets --%s: %s", Variable(name), value, err, name, f.Usage)
		}
	}
	return nil
}
