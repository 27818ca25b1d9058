package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion identifies this API.
var GroupVersion = schema.GroupVersion{Group: "monitoring.openshift.tpg", Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&PacketCapture{}, &PacketCaptureList{},
		&Trace{}, &TraceList{},
		&ResultAccess{}, &ResultAccessList{},
		&FluentPVC{}, &FluentPVCList{},
		&FluentPVCBinding{}, &FluentPVCBindingList{},
		&InterceptRequest{}, &InterceptRequestList{},
		&Collector{}, &CollectorList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the types of this package.
var AddToScheme = schemeBuilder.AddToScheme

// SchemeGroupVersion is GroupVersion, under the name that generated clients use.
var SchemeGroupVersion = GroupVersion

// Resource returns the name of a resource of this group, for generated clients: Resource("traces").
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}
