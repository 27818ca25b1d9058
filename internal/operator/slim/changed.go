package slim

import "sigs.k8s.io/controller-runtime/pkg/event"

// PodChanged ignores updates of fields that the cache does not keep.
func PodChanged(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*Pod)
	now, ok2 := e.ObjectNew.(*Pod)
	return !ok1 || !ok2 || !now.Equal(before)
}

// JobChanged does for Jobs what PodChanged does for Pods.
func JobChanged(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*Job)
	now, ok2 := e.ObjectNew.(*Job)
	return !ok1 || !ok2 || !now.Equal(before)
}
