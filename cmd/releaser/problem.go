package main

import (
	"context"
	"errors"
	"net"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// problem is an error whose reason is known.
type problem struct {
	reason, text string
	// retry: another attempt may succeed. uncounted: it does not count as one of the retries.
	retry, uncounted bool
}

func (p *problem) Error() string { return p.text }

// failed is the report of an error before anything was written.
func failed(err error) release.Report {
	p := classify(err)
	r := release.Report{Outcome: release.Stalled, Reason: p.reason, Message: p.text, Uncounted: p.uncounted}
	if p.retry {
		r.Outcome = release.Retry
	}
	return r
}

// failedRelease is the report of an error while objects were written. Its cause may pass, so attempts follow. If the releaser has to end,
// or something did not answer, the attempt does not count: nothing is rolled back because a node is drained. An attempt that runs out of
// time counts. The manager also counts one that the Job's deadline ends.
func failedRelease(ctx context.Context, err error) release.Report {
	p := classify(err)
	if p.reason == release.ReasonChartInvalid || errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		p.reason, p.uncounted = release.ReasonNotReady, false
	}
	return release.Report{Outcome: release.Retry, Reason: p.reason, Message: p.text, Uncounted: p.uncounted || errors.Is(ctx.Err(), context.Canceled)}
}

// classify finds the reason of an error.
func classify(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return &problem{reason: p.reason, retry: p.retry, uncounted: p.uncounted, text: err.Error()}
	}
	p := &problem{reason: release.ReasonChartInvalid, text: err.Error()}
	var status apierrors.APIStatus // an interface without Error, so AsType does not take it
	isAPI := errors.As(err, &status)
	_, isNet := errors.AsType[net.Error](err)
	switch {
	case isAPI && apierrors.IsForbidden(err):
		p.reason, p.retry = release.ReasonForbidden, true
	case isAPI && apierrors.IsInvalid(err) && isImmutable(status.Status().Message):
		p.reason = release.ReasonImmutable
		p.text += keepField(status.Status().Details)
	case isAPI && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || isUnreadable(err)):
		p.reason = release.ReasonObjectInvalid
	case isAPI, isNet, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		p.reason, p.retry, p.uncounted = release.ReasonUnavailable, true, true
	}
	return p
}

// keepField says what to do about a field that cannot be changed. No attempt follows by itself.
func keepField(of *metav1.StatusDetails) string {
	if of != nil && of.Kind == claimKind {
		return ": keep the field (do not delete the PersistentVolumeClaim: its data would be lost)"
	}
	return ": keep the field, or, if the object holds no data, delete it and request another attempt"
}

// isUnreadable recognizes the API server's answer to an object in server-side apply whose fields have values that its types cannot hold,
// such as a quantity "much". It is an internal error.
func isUnreadable(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "unable to convert unstructured object")
}

// isImmutable recognizes the API server's messages about fields that cannot be changed. It has no machine-readable cause for them.
func isImmutable(message string) bool {
	for _, m := range []string{
		"field is immutable", "is immutable after creation", "may not change once set", "updates to statefulset spec for fields other than",
		"field can not be less than", // a smaller volume: than status.capacity, or than previous value
	} {
		if strings.Contains(message, m) {
			return true
		}
	}
	return false
}
