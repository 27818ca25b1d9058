package probe

import (
	"context"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// work records packets or system calls of a target.
type work interface {
	// logFields describes the recording by keys and values for the log.
	logFields() []any
	// attach starts recording. When it returns, everything is recorded or counted. The caller closes the namespace.
	attach(ns *process.NetNS) (session, error)
}

// session is work after attach.
type session interface {
	// run records until ctx ends, a limit is reached or an error occurs, and releases everything. The cause of ctx decides
	// the reason, as in recording.ReasonOf.
	run(ctx context.Context) outcome
	// count sets engine, current counts and files in an account. Any goroutine may call it at any time.
	count(a *account.Account)
}

// outcome is how a recording ended.
type outcome struct {
	reason recording.Reason
	// err explains DiskFull and Error.
	err error
	// notes tell the user which interfaces or events a complete result leaves out.
	notes string
	// missing reports that an interface that the capture names never appeared; notes say which.
	missing bool
	// gap reports that packets may be missing and are not counted. The notes name the interface.
	gap bool
	// details for the log, in pairs.
	details []any
	// count sets engine, final counts and files in an account.
	count func(a *account.Account)
	// end completes the files when the reason is known; nil if they need nothing.
	end func(reason string, complete bool, message string) error
}
