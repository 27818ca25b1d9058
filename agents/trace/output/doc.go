// Package output writes a trace's events: as JSON lines, as FLAP's lines or as the kernel's binary records, into sinks
// that may be bounded, and counts the events that are written, lost or beyond a limit.
package output
