// Package output writes a trace's events to sinks, as JSON lines, FLAP's lines or the kernel's binary records. It
// counts the events that are written, lost or beyond a limit.
package output
