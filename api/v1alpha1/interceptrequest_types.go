package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VerbIntercept is reviewed on pods of the target's namespace. It is the right to answer a workload's requests, and with it to read
// other people's credentials.
const VerbIntercept = "intercept"

// InterceptMode is how a port is intercepted.
//
// +kubebuilder:validation:Enum=Steal
type InterceptMode string

// InterceptSteal sends new connections to the client in place of the app.
const InterceptSteal InterceptMode = "Steal"

// InterceptSide answers connections.
//
// +kubebuilder:validation:Enum=App;Client
type InterceptSide string

// Sides of an intercept.
const (
	// InterceptApp is the target's own process.
	InterceptApp InterceptSide = "App"
	// InterceptClient is the process on the developer's machine.
	InterceptClient InterceptSide = "Client"
)

// MatchRequire says how many conditions of a match must hold.
//
// +kubebuilder:validation:Enum=All;Any
type MatchRequire string

// Values of MatchRequire.
const (
	MatchAll MatchRequire = "All"
	MatchAny MatchRequire = "Any"
)

// TextMatch is a condition on one value.
//
// +kubebuilder:validation:XValidation:rule="[has(self.exact), has(self.prefix), has(self.regex)].filter(x, x).size() == 1",message="write exactly one of exact, prefix and regex"
type TextMatch struct {
	// exact is the whole value.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Exact *string `json:"exact,omitempty"`

	// prefix is the beginning of the value.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Prefix *string `json:"prefix,omitempty"`

	// regex is a regular expression of RE2 that the whole value matches.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Regex *string `json:"regex,omitempty"`
}

// HeaderMatch is a condition on a header field. If the field is repeated, one of its values must meet it.
type HeaderMatch struct {
	// name of the field. Upper and lower case do not matter.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name,omitempty"`

	TextMatch `json:",inline"`
}

// InterceptMatch selects HTTP/1 requests, or connections of TLS.
//
// +kubebuilder:validation:XValidation:rule="has(self.headers) || has(self.path) || has(self.method) || has(self.serverName)",message="name a condition: set headers, path, method or serverName, or leave match out to intercept every connection"
// +kubebuilder:validation:XValidation:rule="!has(self.serverName) || !(has(self.headers) || has(self.path) || has(self.method))",message="serverName stands alone: the headers, path and method of a TLS connection are encrypted; leave them out, or leave serverName out"
type InterceptMatch struct {
	// require All conditions, or Any of them; by default All.
	// +optional
	// +kubebuilder:default=All
	Require MatchRequire `json:"require,omitempty"`

	// headers that the request has.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Headers []HeaderMatch `json:"headers,omitempty"`

	// path of the request as it was sent: not decoded, and without the query.
	// +optional
	Path *TextMatch `json:"path,omitempty"`

	// method of the request, like GET.
	// +optional
	Method *TextMatch `json:"method,omitempty"`

	// serverName that a TLS connection asks for (SNI), in lower case. The client gets the whole connection, still encrypted.
	// +optional
	ServerName *TextMatch `json:"serverName,omitempty"`
}

// InterceptRequestSpec selects the port of a workload, the requests, and who answers them. It is immutable.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an InterceptRequest is immutable: create a new one"
// +kubebuilder:validation:XValidation:rule="[has(self.targetPod), has(self.targetDeployment), has(self.targetRef)].filter(x, x).size() == 1",message="name one target: set targetDeployment: NAME, targetPod: NAME, or targetRef: {kind: Deployment|StatefulSet|DaemonSet|Pod, name: NAME}"
// +kubebuilder:validation:XValidation:rule="!(has(self.match) && has(self.probes) && self.probes == 'Client')",message="probes: Client has no effect beside match: the app answers TCP probes if there is a match. Leave out match or probes"
type InterceptRequestSpec struct {
	// targetNamespace is where the target runs; by default the request's own namespace. Another one is allowed only in a
	// namespace labelled monitoring.openshift.tpg/hub=true.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="targetNamespace must be the name of a namespace, like shop; leave it out for the request's own"
	TargetNamespace string `json:"targetNamespace,omitempty"`

	// targetPod names one Pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$')",message="targetPod must be the name of a Pod, like web-0"
	TargetPod string `json:"targetPod,omitempty"`

	// targetDeployment names the Deployment whose Pods are intercepted.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$')",message="targetDeployment must be the name of a Deployment, like web"
	TargetDeployment string `json:"targetDeployment,omitempty"`

	// targetRef names the workload whose Pods are intercepted.
	// +optional
	TargetRef *TargetReference `json:"targetRef,omitempty"`

	// targetContainer that has the port. All containers of a Pod share their ports, so it only checks that the container exists.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="targetContainer must be the name of a container, like web"
	TargetContainer string `json:"targetContainer,omitempty"`

	// targetContainerPort is the TCP port on which the workload listens. The port of a Service may be another one.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	TargetContainerPort int32 `json:"targetContainerPort,omitempty"`

	// destinationIP and destinationPort tell readers where the developer's process listens. Only kubectl sonde connects there, from
	// the developer's machine, and only to the address of its own command line.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DestinationIP string `json:"destinationIP,omitempty"`

	// destinationPort is the port of destinationIP.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	DestinationPort int32 `json:"destinationPort,omitempty"`

	// mode of the intercept; by default Steal.
	// +optional
	// +kubebuilder:default=Steal
	Mode InterceptMode `json:"mode,omitempty"`

	// match selects the HTTP/1 requests that the client answers. The app answers all others. Without it the client answers every
	// connection.
	// +optional
	Match *InterceptMatch `json:"match,omitempty"`

	// probes says who answers the kubelet's TCP probes if there is no match; by default App. With a match, the app answers them. HTTP
	// and gRPC probes always go to the app.
	// +optional
	// +kubebuilder:default=App
	Probes InterceptSide `json:"probes,omitempty"`

	// onDisconnect says who answers when the client is lost; by default, and at present always, App.
	// +optional
	// +kubebuilder:default=App
	// +kubebuilder:validation:XValidation:rule="self == 'App'",message="onDisconnect must be App: no other value is supported yet"
	OnDisconnect InterceptSide `json:"onDisconnect,omitempty"`

	// gracePeriod is how long a lost client may take to return before new connections go directly to the app: seconds or a
	// duration; 1 s to 10 min, by default 10s.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="gracePeriod must be seconds, like \"10\", or minutes and seconds, like \"30s\" or \"2m\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? (int(self) >= 1 && int(self) <= 600) : (duration(self) >= duration('1s') && duration(self) <= duration('10m')))",message="gracePeriod must lie between 1s and 10m"
	GracePeriod string `json:"gracePeriod,omitempty"`

	// expiresAfter ends the intercept this long after its creation: seconds or a duration; 10 s to 24 h, by default 8h.
	// +optional
	// +kubebuilder:default="8h"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="expiresAfter must be seconds, like \"600\", or hours, minutes and seconds, like \"10m\" or \"8h\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? (int(self) >= 10 && int(self) <= 86400) : (duration(self) >= duration('10s') && duration(self) <= duration('24h')))",message="expiresAfter must lie between 10s and 24h"
	ExpiresAfter string `json:"expiresAfter,omitempty"`

	// clientKey is the SHA-256 of the client's public key (SubjectPublicKeyInfo, DER), in base64. kubectl sonde makes the key and
	// keeps the private part in its memory.
	// +required
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9+/]{43}=$')",message="clientKey must be the base64 of a SHA-256: let kubectl sonde intercept create the request"
	ClientKey string `json:"clientKey,omitempty"`
}

// InterceptPhase is the state of an intercept.
//
// +kubebuilder:validation:Enum=Pending;Active;Lost;Ended;Failed
type InterceptPhase string

// Phases of an intercept.
const (
	// InterceptPending: no Pod is intercepted, and the client is not lost.
	InterceptPending InterceptPhase = "Pending"
	// InterceptActive: the client is connected, and at least one Pod is intercepted.
	InterceptActive InterceptPhase = "Active"
	// InterceptLost: the client was connected and is not; the app answers.
	InterceptLost InterceptPhase = "Lost"
	// InterceptEnded: the request has expired.
	InterceptEnded InterceptPhase = "Ended"
	// InterceptFailed: the operator has refused the request for good, for example because the user lost the right.
	InterceptFailed InterceptPhase = "Failed"
)

// Condition types of an InterceptRequest, besides ConditionAdmitted. Every condition is written on every pass.
const (
	// ConditionStowawayReady: the cluster's end of the tunnel runs.
	ConditionStowawayReady = "StowawayReady"
	// ConditionClientConnected: the developer's machine is connected.
	ConditionClientConnected = "ClientConnected"
	// ConditionIntercepted: every running Pod of the target is intercepted.
	ConditionIntercepted = "Intercepted"
)

// Reasons of an InterceptRequest's conditions.
const (
	ReasonStowawayReady    = "StowawayReady"    //
	ReasonStowawayStarting = "StowawayStarting" // the Pod of the tunnel's end in the cluster is not ready yet
	ReasonClientConnected  = "ClientConnected"  //
	ReasonClientAwaited    = "ClientAwaited"    // the developer's machine has not connected yet
	ReasonClientLost       = "ClientLost"       // the developer's machine was connected, and is not any more
	ReasonIntercepted      = "Intercepted"      //
	ReasonCarriersStarting = "CarriersStarting" // the containers that intercept the Pods are starting
	ReasonNothingListens   = "NothingListens"   // nothing listens on the port in a Pod; perhaps it is the port of a Service
	ReasonNotInterceptable = "NotInterceptable" // the Pods use their node's network, or run in virtual machines
	ReasonExpired          = "Expired"          // expiresAfter has passed
	ReasonNotChecked       = "NotChecked"       // the API server did not answer a question about the request
)

// InterceptPod is the state of one Pod of the target.
type InterceptPod struct {
	// name of the Pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// uid of the Pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
	// node that the Pod runs on. It is left out if no such node exists.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// job is the Job of the Pod's carrier, in the operator's namespace. All InterceptRequests of the Pod share it, and it is deleted
	// with the last of them.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Job string `json:"job,omitempty"`
	// active reports that new connections to the port go to the carrier, for this request's client. They still do for gracePeriod after
	// the client was lost. After the end of the intercept it is false.
	// +optional
	Active bool `json:"active,omitempty"`
	// message says why the Pod is not intercepted.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	InterceptCounters `json:",inline"`
}

// InterceptCounters count on one Pod. They begin at 0 when a carrier of the Pod gets the InterceptRequest, and again when another
// carrier replaces it. Carriers report them each second, and the operator writes them within about 12 s. What happened in the last
// second or two of an intercept is missing.
type InterceptCounters struct {
	// connections counts those to the port that the carrier accepted. It does not matter who answered. Each InterceptRequest of the
	// port counts all of them. One connection may have many requests.
	// +optional
	Connections int64 `json:"connections,omitempty"`
	// matched counts requests that went to the client. A connection that is relayed as a whole counts as one. A request counts when its
	// first bytes are sent.
	// +optional
	Matched int64 `json:"matched,omitempty"`
	// passed counts what the carrier gave to the app: requests, and connections that are relayed as a whole. It includes failed
	// requests and probes. InterceptRequests of the same port all count them.
	// +optional
	Passed int64 `json:"passed,omitempty"`
	// failed counts requests and connections that did not reach the client although it was connected, for example because the
	// developer's process refused the connection. They went to the app, so passed counts them, too.
	// +optional
	Failed int64 `json:"failed,omitempty"`
	// overlaps counts requests that matched, but that an older InterceptRequest took because they also match that one. While the
	// older one's client is lost, the app answers them.
	// +optional
	Overlaps int64 `json:"overlaps,omitempty"`
	// bytesToClient are the bytes that the client received.
	// +optional
	BytesToClient int64 `json:"bytesToClient,omitempty"`
	// bytesFromClient are the bytes that the client sent.
	// +optional
	BytesFromClient int64 `json:"bytesFromClient,omitempty"`
}

// InterceptRequestStatus is what the operator last observed.
type InterceptRequestStatus struct {
	// phase of the intercept.
	// +optional
	Phase InterceptPhase `json:"phase,omitempty"`

	// active reports that the phase is Active: the client is connected, and at least one Pod is intercepted.
	// +optional
	Active bool `json:"active,omitempty"`

	// target as Kind/name, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=320
	Target string `json:"target,omitempty"`

	// stowawayKey is the SHA-256 of Stowaway's public key, in base64. The client refuses a Stowaway with another key.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	StowawayKey string `json:"stowawayKey,omitempty"`

	// stowawayNamespace has the Service sonde-stowaway, through which the client connects.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	StowawayNamespace string `json:"stowawayNamespace,omitempty"`

	// heartbeat is when the client last answered, rounded down to the minute, but not before the creation. The client is asked each
	// second. If nothing else in the status changes, a new heartbeat is written within about 12 s.
	// +optional
	Heartbeat *metav1.Time `json:"heartbeat,omitempty"`

	// expires is when the intercept ends.
	// +optional
	Expires *metav1.Time `json:"expires,omitempty"`

	// pods of the target, at most 500: those that are intercepted or will be, and up to 20 of the others. After the end they are the last
	// ones, and none is active. Their counters are up to about 12 s old, and begin at 0 with each new carrier of the Pod. They miss the
	// last second or two of an intercept.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=500
	Pods []InterceptPod `json:"pods,omitempty"`

	// podsOmitted counts Pods of the target that pods does not list.
	// +optional
	PodsOmitted int32 `json:"podsOmitted,omitempty"`

	// removedPods has the sums of the last counters of Pods that the target no longer has, or that pods no longer lists. For totals, add
	// the counters in pods.
	// +optional
	RemovedPods *InterceptCounters `json:"removedPods,omitempty"`

	// conditions of the intercept.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InterceptRequest lets a developer's machine answer the requests to one port of all Pods of a workload. No Pod is changed or
// restarted.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=icpt,categories=sonde
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.status.target`
// +kubebuilder:printcolumn:name="Port",type=integer,JSONPath=`.spec.targetContainerPort`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Intercepted")].reason`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.status.expires`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type InterceptRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec InterceptRequestSpec `json:"spec,omitzero"`
	// +optional
	Status InterceptRequestStatus `json:"status,omitzero"`
}

// InterceptRequestList is a list of InterceptRequests.
//
// +kubebuilder:object:root=true
type InterceptRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []InterceptRequest `json:"items"`
}

// InterceptKind is the name of the kind.
const InterceptKind = "InterceptRequest"

// KindName implements AgentJobOwner.
func (*InterceptRequest) KindName() string { return InterceptKind }

// AgentTarget implements AgentJobOwner.
func (r *InterceptRequest) AgentTarget() (string, TargetReference) {
	target := targetOf(r.Spec.TargetDeployment, r.Spec.TargetRef)
	if r.Spec.TargetPod != "" {
		target = TargetReference{Kind: TargetPod, Name: r.Spec.TargetPod}
	}
	return cmp.Or(r.Spec.TargetNamespace, r.Namespace), target
}

// Ended implements AgentJobOwner.
func (r *InterceptRequest) Ended() bool {
	return r.Status.Phase == InterceptEnded || r.Status.Phase == InterceptFailed
}
