package probe

import (
	"context"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// work is what a probe does to its target: it captures its packets, or traces its calls.
type work interface {
	// asked is what it was asked for, for the log, as its keys and values.
	asked() []any
	// attach begins: everything of the target is counted when it returns. The namespace is the caller's to close.
	attach(ns *process.NetNS) (session, error)
}

// session is work that is attached.
type session interface {
	// run returns when ctx has ended, or a limit or an error has ended it, and nothing is left open. The cause of ctx
	// decides the reason, as in recording.ReasonOf.
	run(ctx context.Context) outcome
	// count puts the engine, the counts of this moment, and the files, into an account, at any time and from any goroutine.
	count(a *account.Account)
}

// outcome is how a recording ended.
type outcome struct {
	reason recording.Reason
	// err explains DiskFull and Error.
	err error
	// notes for people on what is not in a whole result.
	notes string
	// details for the log, in pairs.
	details []any
	// count puts the engine, the final counts and the files into an account.
	count func(a *account.Account)
	// end writes the last of the files, once it is known why and how the recording ended; nil if there is nothing to
	// write.
	end func(reason string, whole bool, message string) error
}
