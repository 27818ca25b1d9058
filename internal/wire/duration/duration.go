// Package duration reads the durations of the API: seconds, like "30", or hours, minutes and seconds, like "90s", "5m" or
// "1h30m".
package duration

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Parse reads a duration. It accepts the same forms as the CRD's validation rules, and its errors name them.
func Parse(s string) (time.Duration, error) {
	if s == "" || strings.TrimLeft(s, "0123456789hms") != "" || strings.Contains(s, "ms") {
		return 0, fmt.Errorf("duration %q: write seconds, like \"30\", or hours, minutes and seconds, like \"90s\", \"5m\" or \"1h30m\"", s)
	}
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("duration %q: write seconds, like \"30\", or hours, minutes and seconds, like \"90s\", \"5m\" or \"1h30m\"", s)
	}
	return d, nil
}
