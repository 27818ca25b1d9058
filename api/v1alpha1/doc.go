// Package v1alpha1 holds the monitoring.openshift.tpg API.
//
// +kubebuilder:object:generate=true
// +groupName=monitoring.openshift.tpg
// +groupGoName=Monitoring
package v1alpha1
