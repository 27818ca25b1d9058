package v1alpha1

// Labels and annotations of gated Pods. They are hints that the creator of a Pod can write: only its target decides what a Trace
// traces.
const (
	// LabelTraceRequired is "true" on a Pod that must not start untraced if a Trace gates it: its admission fails closed, and its gate
	// fails if no tracer comes. Without such a Trace in the namespace the label has no effect.
	LabelTraceRequired = "monitoring.openshift.tpg/trace-required"

	// AnnotationGatedBy holds "namespace/name" of the Trace whose tracer opens the Pod's gate.
	AnnotationGatedBy = "monitoring.openshift.tpg/gated-by"
	// AnnotationGatedByUID holds the UID of that Trace.
	AnnotationGatedByUID = "monitoring.openshift.tpg/gated-by-uid"
)
