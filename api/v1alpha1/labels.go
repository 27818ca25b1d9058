package v1alpha1

// Labels and annotations of Sonde. All lie under the API group's name, so that
// a cluster admin can protect them by one prefix.
const (
	// LabelUID, on every object that Sonde makes for a custom resource, holds that resource's UID.
	// It alone decides what belongs to a resource; the app.kubernetes.io labels are for people.
	LabelUID = "monitoring.openshift.tpg/uid"
	// LabelTargetPodUID, on a Job and its Pod, holds the UID of the Pod that the Job is for.
	LabelTargetPodUID = "monitoring.openshift.tpg/target-pod-uid"
	// LabelKind holds the kind of the resource that LabelUID names.
	LabelKind = "monitoring.openshift.tpg/kind"
	// LabelHub, set to "true" on a namespace by a cluster admin, allows targets in other namespaces.
	LabelHub = "monitoring.openshift.tpg/hub"

	// LabelOptOut, set to "true" on a namespace by a cluster admin, refuses all targets in it.
	LabelOptOut = "monitoring.openshift.tpg/opt-out"

	// AnnotationOwner holds "namespace/name" of the resource that an object was made for.
	AnnotationOwner = "monitoring.openshift.tpg/owner"
	// AnnotationTargetNamespace, AnnotationTargetPod and AnnotationTargetNode say, on a Job and
	// its Pod, which Pod is the target and where it runs.
	AnnotationTargetNamespace = "monitoring.openshift.tpg/target-ns"
	AnnotationTargetPod       = "monitoring.openshift.tpg/target-pod"
	AnnotationTargetNode      = "monitoring.openshift.tpg/target-node"
	// AnnotationTargetContainer and AnnotationTargetCommand say, on a Job and its Pod of a Trace, which of the target's
	// containers, with commas between their names, and which command are traced; "*" is all.
	AnnotationTargetContainer = "monitoring.openshift.tpg/target-container"
	AnnotationTargetCommand   = "monitoring.openshift.tpg/target-command"
	// AnnotationRequester, written by the webhook, says who asked (JSON, see internal/operator/stamp).
	AnnotationRequester = "monitoring.openshift.tpg/requester"
	// AnnotationStamp, written by the webhook, is the HMAC over namespace, spec and requester.
	AnnotationStamp = "monitoring.openshift.tpg/stamp"
)

// The five labels of the source systems, on every object for people.
const (
	LabelAppName      = "app.kubernetes.io/name"
	LabelAppInstance  = "app.kubernetes.io/instance"
	LabelAppPartOf    = "app.kubernetes.io/part-of"
	LabelAppManagedBy = "app.kubernetes.io/managed-by"
	LabelAppCreatedBy = "app.kubernetes.io/created-by"
)

// Verbs of Sonde, reviewed on pods of the target's namespace, and on nodes where the target is one with its node: by its
// network namespace, and for traces by that of its processes too.
const (
	VerbCapture = "capture"
	VerbTrace   = "trace"
)
