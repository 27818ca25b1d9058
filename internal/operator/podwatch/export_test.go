package podwatch

import "k8s.io/client-go/tools/cache"

// Source returns what the informer of Pods lists and watches.
func (w *Watch) Source(from cache.ListerWatcher) cache.ListerWatcherWithContext {
	return source{cache.ToListerWatcherWithContext(from), w}
}
