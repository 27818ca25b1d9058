package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"strconv"

	"github.com/sonde-operator/sonde/agents/opener"
)

// readySuffix is what the opener's readiness file has after the name of its socket.
const readySuffix = ".ready"

// runOpener steers connections of one Pod to the carrier in the same Job. Its exit codes are in package opener.
func runOpener(ctx context.Context, args []string, log *slog.Logger) (int, error) {
	flags := flag.NewFlagSet("agent opener", flag.ContinueOnError)
	var o opener.Options
	flags.StringVar(&o.PodUID, "pod-uid", "", "`UID` of the target Pod, as its cgroup has it")
	flags.StringVar(&o.PodName, "pod-name", "", "`name` of the target Pod")
	flags.Func("carrier-user", "`UID` of the user that the carrier runs as, not root", func(s string) error {
		user, err := strconv.ParseUint(s, 10, 32)
		if err == nil && (user == 0 || user == math.MaxUint32) {
			err = fmt.Errorf("the carrier must not be user %d", user)
		}
		o.CarrierUser = uint32(user)
		return err
	})
	flags.StringVar(&o.Socket, "socket", "", "`path` of the Unix socket for the carrier")
	flags.StringVar(&o.Ready, "ready", "", "`file` to make once attached (default the socket's name with "+readySuffix+")")
	flags.StringVar(&o.TerminationLog, "termination-log", terminationLog, "`file` for the reason of the end")
	if err := parse(flags, args, "pod-uid", "pod-name", "carrier-user", "socket"); err != nil {
		return exitUsage, err
	}
	if o.Ready == "" {
		o.Ready = o.Socket + readySuffix
	}
	return opener.New(&o, log).Run(ctx), nil
}
