// Package traceview shows traces to people: a line for each event as it arrives, and a summary of all events at the
// end. A traced program chooses the names in its trace, so all texts are quoted or stripped of control characters.
package traceview
