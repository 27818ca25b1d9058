package host

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Ready is the line that a child process prints when it can be used.
const Ready = "ready"

// StartReady starts a child process and waits until it has printed Ready. said collects what it prints.
func StartReady(ctx context.Context, cmd *exec.Cmd, said *Output) error {
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %v: %w", cmd.Args, err)
	}
	err := Await(ctx, "it is ready", func() (bool, error) {
		return strings.Contains(said.String(), Ready+"\n"), StillRuns(cmd.Process.Pid)
	})
	if err != nil {
		Kill(cmd)
		return fmt.Errorf("start %v: %w: %s", cmd.Args, err, said.String())
	}
	return nil
}
