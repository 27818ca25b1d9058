package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// CollectorKind is the name of the kind.
const CollectorKind = "Collector"

// CollectorRelease names a tenant's backend and configures it.
type CollectorRelease struct {
	// name begins the names of the release and of its objects. For a chart from a repository it is also the name of the chart,
	// unless chart.name is set. It is immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="collector.name must begin with a letter and consist of a-z, 0-9 and -, like collector"
	Name string `json:"name,omitempty"`

	// version of the chart, as Helm understands it: 1.2.0, or a range like ~1.2. By default the newest one.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// configuration is a YAML document with Helm values, in base64.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	Configuration string `json:"configuration,omitempty"`
}

// CollectorTenant says whose backend it is.
type CollectorTenant struct {
	// id of the tenant. The chart's values have it as global.tenant.id.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ID string `json:"id,omitempty"`

	// reference, in lower case, is the namespace of the release. The namespace must exist, and its admin must have opened it with
	// kubectl sonde collector open. It is immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$')",message="tenant.reference must be the name of a namespace, in upper or lower case, like acme"
	Reference string `json:"reference,omitempty"`

	// instance ends the name of the release. It is immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="tenant.instance must consist of a-z, 0-9 and -, like prod"
	Instance string `json:"instance,omitempty"`
}

// ChartSource is where a chart comes from.
//
// +kubebuilder:validation:Enum=embedded;oci;http
type ChartSource string

// Sources of charts.
const (
	// ChartEmbedded is the chart that comes with the operator.
	ChartEmbedded ChartSource = "embedded"
	// ChartOCI is a registry.
	ChartOCI ChartSource = "oci"
	// ChartHTTP is a repository of Helm charts.
	ChartHTTP ChartSource = "http"
)

// CollectorChart says which chart is installed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.source) || self.source == 'embedded' ? !has(self.url) && !has(self.digest) && !has(self.secretRef) && !has(self.caBundle) && !has(self.name) : has(self.url)",message="the sources oci and http need a url; the embedded chart has no url, name, digest, secretRef and caBundle"
// +kubebuilder:validation:XValidation:rule="!has(self.url) || (self.source == 'oci' ? self.url.matches('^oci://[^/@]+/.+$') : self.url.matches('^https?://[^/@]+(/.*)?$'))",message="url must be like oci://registry.example.com/charts/collector for oci, and like https://charts.example.com/stable for http; credentials belong into secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.secretRef) || !has(self.url) || !self.url.startsWith('http://')",message="with secretRef the url must be https: http sends the password in clear"
type CollectorChart struct {
	// source of the chart; by default embedded.
	// +optional
	// +kubebuilder:default=embedded
	Source ChartSource `json:"source,omitempty"`

	// url of the chart in a registry, or of its repository.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	URL string `json:"url,omitempty"`

	// name of the chart in a repository; by default collector.name.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// version of the chart; by default collector.version.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// digest that the chart must have: of the manifest in a registry, or of the archive in a repository.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="digest must be sha256: and 64 hexadecimal digits"
	Digest string `json:"digest,omitempty"`

	// secretRef names a Secret in the release's namespace with the keys username and password. Only the releaser reads it.
	// +optional
	SecretRef *CollectorSecretReference `json:"secretRef,omitempty"`

	// caBundle has certificates in PEM that the server's certificate is checked against.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`
}

// CollectorSecretReference names a Secret in the release's namespace.
type CollectorSecretReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// CollectorValuesReference names a key of a Secret or a ConfigMap in the release's namespace. Its value is a YAML document with Helm
// values.
type CollectorValuesReference struct {
	// kind of the object: Secret or ConfigMap.
	// +required
	// +kubebuilder:validation:Enum=Secret;ConfigMap
	Kind string `json:"kind,omitempty"`
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",message="name must be that of a Secret or a ConfigMap, like collector-values"
	Name string `json:"name,omitempty"`
	// key of the object; by default values.yaml.
	// +optional
	// +kubebuilder:default=values.yaml
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$') && self != '.' && self != '..'",message="key must consist of letters, digits, -, _ and ., like values.yaml"
	Key string `json:"key,omitempty"`
}

// CollectorSpec is a tenant's backend: which chart, with which values, for whom.
//
// +kubebuilder:validation:XValidation:rule="self.collector.name == oldSelf.collector.name && self.tenant.reference.lowerAscii() == oldSelf.tenant.reference.lowerAscii() && self.tenant.instance == oldSelf.tenant.instance",message="collector.name, tenant.reference and tenant.instance name the release, so they are immutable: create another Collector, and delete this one"
// +kubebuilder:validation:XValidation:rule="size(self.collector.name) + size(self.tenant.instance) < 53",message="the release is named collector.name-tenant.instance, and Helm allows 53 characters: shorten one of them"
type CollectorSpec struct {
	// collector is the release, and the chart's version and values.
	// +required
	Collector CollectorRelease `json:"collector,omitzero"`

	// tenant that the backend belongs to.
	// +required
	Tenant CollectorTenant `json:"tenant,omitzero"`

	// cluster that the backend is for. The chart's values have it as global.cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Cluster string `json:"cluster,omitempty"`

	// chart that is installed; by default the one that comes with the operator.
	// +optional
	Chart *CollectorChart `json:"chart,omitempty"`

	// valuesFrom are values in Secrets or ConfigMaps of the release's namespace. They override those of collector.configuration, and
	// later ones override earlier ones. Only the releaser reads them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	ValuesFrom []CollectorValuesReference `json:"valuesFrom,omitempty"`

	// values of the chart. They override those of collector.configuration and valuesFrom.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Values *runtime.RawExtension `json:"values,omitempty"`

	// install bounds the first release. If it fails, it is uninstalled.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.remediation) || self.remediation == 'uninstall'",message="a first release that fails has no earlier one: install.remediation can only be uninstall"
	Install *CollectorAction `json:"install,omitempty"`

	// upgrade bounds each later release.
	// +optional
	Upgrade *CollectorAction `json:"upgrade,omitempty"`

	// drift says what happens when others have changed or deleted objects of the release; by default Ignore.
	// +optional
	// +kubebuilder:default=Ignore
	Drift CollectorDrift `json:"drift,omitempty"`

	// interval between looking at the objects, unless drift is Ignore: seconds or a duration; 30 s to 24 h, by default 10m.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="interval must be seconds, like \"600\", or hours, minutes and seconds, like \"90s\" or \"10m\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? (int(self) >= 30 && int(self) <= 86400) : (duration(self) >= duration('30s') && duration(self) <= duration('24h')))",message="interval must lie between 30s and 24h"
	Interval string `json:"interval,omitempty"`

	// suspend keeps the release as it is, whatever else changes.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// CollectorDrift is what the operator does about objects of a release that others have changed or deleted.
//
// +kubebuilder:validation:Enum=Repair;Warn;Ignore
type CollectorDrift string

// Values of CollectorDrift.
const (
	// DriftRepair makes them as the chart says.
	DriftRepair CollectorDrift = "Repair"
	// DriftWarn names them in the condition Ready.
	DriftWarn CollectorDrift = "Warn"
	// DriftIgnore does not look at them.
	DriftIgnore CollectorDrift = "Ignore"
)

// CollectorRemediation is what happens to a release whose last attempt has failed.
//
// +kubebuilder:validation:Enum=rollback;uninstall
type CollectorRemediation string

// Values of CollectorRemediation.
const (
	// RemediationRollback makes the last revision again whose objects were ready.
	RemediationRollback CollectorRemediation = "rollback"
	// RemediationUninstall removes the release.
	RemediationUninstall CollectorRemediation = "uninstall"
)

// CollectorAction bounds the attempts to install or to upgrade.
type CollectorAction struct {
	// timeout of an attempt, until all objects are ready: seconds or a duration; 10 s to 1 h, by default 5m.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') && self != ''",message="timeout must be seconds, like \"300\", or minutes and seconds, like \"90s\" or \"5m\""
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,6}|([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}s)?)$') || self == '' || (self.matches('^[0-9]+$') ? (int(self) >= 10 && int(self) <= 3600) : (duration(self) >= duration('10s') && duration(self) <= duration('1h')))",message="timeout must lie between 10s and 1h"
	Timeout string `json:"timeout,omitempty"`

	// retries after a failed attempt, before the release is rolled back, or uninstalled if it was never ready; by default 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Retries *int32 `json:"retries,omitempty"`

	// remediation after the last attempt has failed: by default uninstall for a first release, and rollback for a later one.
	// +optional
	Remediation CollectorRemediation `json:"remediation,omitempty"`
}

// Condition types of a Collector, besides ConditionAdmitted and ConditionReady: the release is as the spec says, and its objects are
// ready. Every condition is written on every pass.
const (
	// ConditionReconciling: a Job runs, or will run by itself.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: nothing more happens before someone changes the Collector or what its message names.
	ConditionStalled = "Stalled"
	// ConditionReleased: the last attempt to install or to upgrade succeeded.
	ConditionReleased = "Released"
	// ConditionRemediated: the last release failed, and was rolled back or uninstalled.
	ConditionRemediated = "Remediated"
)

// Reasons of a Collector's conditions, besides those that a report of the releaser brings.
const (
	ReasonReleased           = "Released"           //
	ReasonReleasing          = "Releasing"          // a Job runs
	ReasonRetrying           = "Retrying"           // the last attempt failed; another one follows
	ReasonSuspended          = "Suspended"          // spec.suspend
	ReasonNamespaceNotOpened = "NamespaceNotOpened" // the namespace's admin has not opened it
	ReasonReleaseNameTaken   = "ReleaseNameTaken"   // another Collector, or Helm, has a release of this name
	ReasonNotReleased        = "NotReleased"        // no attempt has ended yet
	ReasonUpToDate           = "UpToDate"           // nothing to do
	ReasonRolledBack         = "RolledBack"         // the last upgrade failed, and the version before runs again
	ReasonUninstalled        = "Uninstalled"        // the install failed, and its objects were removed
	ReasonNothingFailed      = "NothingFailed"      //
	ReasonNotRemediated      = "NotRemediated"      // the last attempt failed; the release was not touched, or more attempts follow
)

// CollectorRevision is a release that was made.
type CollectorRevision struct {
	// revision of the release.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision,omitempty"`
	// chartVersion of the release.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ChartVersion string `json:"chartVersion,omitempty"`
	// status as Helm names it: deployed, superseded, failed.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Status string `json:"status,omitempty"`
	// time of the release.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}

// CollectorStatus is what the operator last observed.
type CollectorStatus struct {
	// observedGeneration is the generation that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// release is the name of the Helm release, and namespace has it.
	// +optional
	// +kubebuilder:validation:MaxLength=53
	Release string `json:"release,omitempty"`
	// namespace of the release.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// revision that is deployed.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// chartVersion that is deployed.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	ChartVersion string `json:"chartVersion,omitempty"`

	// releasedGeneration is the last generation of the Collector whose attempt succeeded, and stalledGeneration the last one for
	// which no further attempt is made.
	// +optional
	ReleasedGeneration int64 `json:"releasedGeneration,omitempty"`
	// +optional
	StalledGeneration int64 `json:"stalledGeneration,omitempty"`

	// checked is when the objects were last as the chart says, or were found to differ.
	// +optional
	Checked *metav1.Time `json:"checked,omitempty"`

	// job of the current or the last attempt. It has the releaser's log.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Job string `json:"job,omitempty"`
	// reportedJob is the last Job whose result is in this status.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ReportedJob string `json:"reportedJob,omitempty"`
	// runs is the number of Jobs that were created.
	// +optional
	Runs int64 `json:"runs,omitempty"`
	// retried is the value of the annotation monitoring.openshift.tpg/retry that the operator has followed.
	// +optional
	// +kubebuilder:validation:MaxLength=201
	Retried string `json:"retried,omitempty"`
	// attempts that have failed for the observed generation.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// failures are the attempts that count as retries. Attempts that could not reach the API server or a repository do not.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// nextAttempt is when a failed attempt is repeated.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`

	// history has the last revisions, the newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	History []CollectorRevision `json:"history,omitempty"`

	// conditions of the Collector.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Collector installs, upgrades and removes the backend of a tenant with a Helm chart. Helm runs in a Job in the tenant's namespace,
// with the rights that the namespace's admin has given it.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=col,categories=sonde
// +kubebuilder:printcolumn:name="Release",type=string,JSONPath=`.status.release`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.status.namespace`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.chartVersion`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Collector struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CollectorSpec `json:"spec,omitzero"`
	// +optional
	Status CollectorStatus `json:"status,omitzero"`
}

// ReleaseNamespace is the namespace of the release.
func (c *Collector) ReleaseNamespace() string { return strings.ToLower(c.Spec.Tenant.Reference) }

// ReleaseName is the name of the release.
func (c *Collector) ReleaseName() string {
	return c.Spec.Collector.Name + "-" + c.Spec.Tenant.Instance
}

// CollectorList is a list of Collectors.
//
// +kubebuilder:object:root=true
type CollectorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Collector `json:"items"`
}
