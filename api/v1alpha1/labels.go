package v1alpha1

// Labels and annotations of Sonde. All begin with the API group's name, so that a cluster admin can protect them by one prefix.
const (
	// LabelUID, on every object that Sonde creates for a custom resource, holds that resource's UID. It alone decides which objects
	// belong to the resource; the app.kubernetes.io labels are for people.
	LabelUID = "monitoring.openshift.tpg/uid"
	// LabelTargetPodUID, on a Job and its Pod, holds the UID of the Pod that the Job is for.
	LabelTargetPodUID = "monitoring.openshift.tpg/target-pod-uid"
	// LabelKeeperUser, on a Job and its Pod, holds the user ID of the keeper. No other live Job has the same.
	LabelKeeperUser = "monitoring.openshift.tpg/keeper-user"
	// LabelStowaway, on a carrier's Job, is a hash of the key and the address of the Stowaway that it connects to.
	LabelStowaway = "monitoring.openshift.tpg/stowaway"
	// LabelKind holds the kind of the resource that LabelUID names.
	LabelKind = "monitoring.openshift.tpg/kind"
	// LabelHub is "true" on a namespace from which a cluster admin allows targets in other namespaces.
	LabelHub = "monitoring.openshift.tpg/hub"

	// LabelOptOut is "true" on a namespace in which a cluster admin allows no targets.
	LabelOptOut = "monitoring.openshift.tpg/opt-out"

	// AnnotationOwner holds "namespace/name" of the resource that an object belongs to.
	AnnotationOwner = "monitoring.openshift.tpg/owner"
	// AnnotationTargetNamespace, AnnotationTargetPod and AnnotationTargetNode name the target Pod and its node, on a Job and its
	// Pod.
	AnnotationTargetNamespace = "monitoring.openshift.tpg/target-ns"
	AnnotationTargetPod       = "monitoring.openshift.tpg/target-pod"
	AnnotationTargetNode      = "monitoring.openshift.tpg/target-node"
	// AnnotationCarrierKey, on a carrier's Job, is the SHA-256 of its public key, in base64.
	AnnotationCarrierKey = "monitoring.openshift.tpg/carrier-key"
	// AnnotationTargetContainer and AnnotationTargetCommand name the traced containers, separated by commas, and the traced command,
	// on a Job and its Pod of a Trace; "*" means all.
	AnnotationTargetContainer = "monitoring.openshift.tpg/target-container"
	AnnotationTargetCommand   = "monitoring.openshift.tpg/target-command"
	// AnnotationContainersNotFound, on a Job and its Pod of a Trace, names the containers of the spec that the target Pod does not
	// have, separated by commas.
	AnnotationContainersNotFound = "monitoring.openshift.tpg/containers-not-found"
	// AnnotationRequester, written by the webhook, names the requester (JSON, see internal/operator/stamp).
	AnnotationRequester = "monitoring.openshift.tpg/requester"
	// AnnotationStamp, written by the webhook, is the HMAC over namespace, spec and requester.
	AnnotationStamp = "monitoring.openshift.tpg/stamp"
	// AnnotationStoppedBy, written by the webhook, names the user who set spec.stop, with a signature (internal/operator/stamp).
	AnnotationStoppedBy = "monitoring.openshift.tpg/stopped-by"
)

// The five labels of the source systems, on every object for people.
const (
	LabelAppName      = "app.kubernetes.io/name"
	LabelAppInstance  = "app.kubernetes.io/instance"
	LabelAppPartOf    = "app.kubernetes.io/part-of"
	LabelAppManagedBy = "app.kubernetes.io/managed-by"
	LabelAppCreatedBy = "app.kubernetes.io/created-by"
)

// Verbs of Sonde, reviewed on pods of the target's namespace, and on nodes if the target shares its node's network namespace or,
// for traces, its node's processes.
const (
	VerbCapture = "capture"
	VerbTrace   = "trace"
)

// VerbInject is reviewed on pods of all namespaces. It is the right to define a FluentPVC, which puts containers into other people's
// Pods.
const VerbInject = "inject"

// Keys with which a Pod names its FluentPVC, as an annotation or a label.
const (
	KeyFluentPVC = "monitoring.openshift.tpg/fluent-pvc-name"
	// KeyFluentPVCSource is the key of the source system.
	KeyFluentPVCSource = "fluent-pvc-operator.tech.zozo.com/fluent-pvc-name"
)

const (
	// AnnotationRun numbers the Jobs of a Collector.
	AnnotationRun = "monitoring.openshift.tpg/run"
	// AnnotationGeneration says which generation of its Collector a Job releases.
	AnnotationGeneration = "monitoring.openshift.tpg/generation"
)

// AnnotationClaim is written by the webhook. It names the claim of a Pod, with a signature (internal/operator/claim).
const AnnotationClaim = "monitoring.openshift.tpg/fluent-pvc-claim"
