package v1alpha1

// Labels and annotations of gated Pods. They are hints, which whoever creates a Pod can write himself: what a Trace
// traces is decided by its target, never by them.
const (
	// LabelTraceRequired, set to "true" on a Pod, says that the Pod must not start untraced where a Trace gates it: its
	// admission fails closed, and its gate refuses to let it start when no tracer comes. Without such a Trace in its
	// namespace the label means nothing.
	LabelTraceRequired = "monitoring.openshift.tpg/trace-required"

	// AnnotationGatedBy holds "namespace/name" of the Trace for whose tracer a Pod's gate waits.
	AnnotationGatedBy = "monitoring.openshift.tpg/gated-by"
	// AnnotationGatedByUID holds the UID of that Trace.
	AnnotationGatedByUID = "monitoring.openshift.tpg/gated-by-uid"
)
