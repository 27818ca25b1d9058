package wiring

import (
	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Logger returns the manager's logger, which writes every record. In production mode controller-runtime's samples equal
// messages: with 100 requests in a second a user could hide audit records, also those of others.
// Nor does it write stack traces of errors, unless a flag asks for them: 3 KB for each failed request would let a user rotate the
// container's log.
func Logger(o zap.Options) logr.Logger {
	if o.StacktraceLevel == nil && !o.Development {
		o.StacktraceLevel = zapcore.PanicLevel
	}
	// The sampler has no switch. It is added after o.ZapOpts, so the core that these see is the one without it.
	var unsampled zapcore.Core
	o.ZapOpts = append(o.ZapOpts, uberzap.WrapCore(func(c zapcore.Core) zapcore.Core {
		unsampled = c
		return c
	}))
	sampled := zap.NewRaw(zap.UseFlagOptions(&o))
	return zapr.NewLogger(sampled.WithOptions(uberzap.WrapCore(func(zapcore.Core) zapcore.Core { return unsampled })))
}
