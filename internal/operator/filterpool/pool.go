package filterpool

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Pool compiles filters in child processes. It is safe for concurrent use.
type Pool struct {
	quick, thorough *lane
}

// New returns a pool. It starts no child before the first filter, and logs how the first is confined. It fails if the binary
// was built without libpcap.
func New(c clock.PassiveClock, log logr.Logger) (*Pool, error) {
	if _, err := pcapfilter.New(pcapfilter.Most); err != nil {
		return nil, err
	}
	var first sync.Once
	start := func(b bounds) func() (child, error) {
		return func() (child, error) {
			p, err := startProcess(c, b.name)
			if err != nil {
				return nil, err
			}
			first.Do(func() { logRestrictions(log, p.inForce) })
			return p, nil
		}
	}
	return &Pool{quick: newLane(quick, c, start(quick)), thorough: newLane(thorough, c, start(thorough))}, nil
}

func logRestrictions(log logr.Logger, r restriction.InForce) {
	if !r.Files {
		log.Info("Running the filter compiler without Landlock: only its sandbox keeps filters from the manager's files", "restrictions", r)
		return
	}
	log.Info("Confining the filter compiler", "restrictions", r)
}

// Compile translates an expression as pcapfilter's Compiler does, for the named user. A *pcapfilter.SyntaxError means that
// the expression is wrong, and a *BusyError that too many of the user's filters wait. Every other error is a failure of
// the operator or the machine, and may be retried.
func (p *Pool) Compile(ctx context.Context, requester, expression string, link pcapfilter.LinkType, snapLen int) (bpfprog.Program, error) {
	if done, err := pcapfilter.Check(expression, link, snapLen); done || err != nil {
		return nil, err
	}
	user, r := userOf(requester), request{Expression: expression, Link: link, SnapLen: snapLen}
	a, err := p.quick.do(ctx, user, r)
	if errors.Is(err, errTimeout) || a.Refusal != nil && a.Refusal.Exhausted {
		a, err = p.thorough.do(ctx, user, r)
	}
	switch {
	case err != nil:
		return nil, err
	case a.Failure != "":
		return nil, fmt.Errorf("compile filter: %s", text.OneLine(a.Failure, maxLastWords))
	case a.Refusal != nil:
		return nil, pcapfilter.Refused(expression, a.Refusal.Offset, a.Refusal.Message)
	case len(a.Program) == 0:
		return nil, errors.New("compile filter: the compiler returned no program")
	}
	return a.Program, nil
}

// Close ends the children. Compile fails afterwards.
func (p *Pool) Close() {
	p.quick.close()
	p.thorough.close()
}
