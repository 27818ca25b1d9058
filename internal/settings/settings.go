// Package settings lets an admin set the manager's flags by environment variables, which is the one thing
// of a Deployment that OLM lets him set (Subscription, spec.config.env).
package settings

import (
	"flag"
	"fmt"
	"strings"
)

// Variable that sets a flag: SONDE_MAX_DURATION for max-duration.
func Variable(flagName string) string {
	return "SONDE_" + strings.ToUpper(strings.ReplaceAll(flagName, "-", "_"))
}

// FromEnvironment sets the named flags from their variables, where there are such. Call it before the command
// line is parsed, which then beats it. An error names the variable and what it may hold. No flag whose name
// ends in -port may be among them: for a Service sonde-x Kubernetes sets SONDE_X_PORT in each Pod.
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
