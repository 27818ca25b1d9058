// Package capture reconciles PacketCaptures and Traces: a pass observes, plans, acts and reports. It also deletes
// ResultAccesses that have expired.
package capture
