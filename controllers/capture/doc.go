// Package controllers holds one reconciler per kind, and the sweeper that removes what has no owner.
// A reconciler observes, plans, acts and reports; what it builds and judges lives in internal/.
package capture
