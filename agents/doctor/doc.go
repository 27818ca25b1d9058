// Package doctor finds out what a node's kernel allows of what Sonde does there, by trying it: programs are loaded and
// attached, and taken away at once. The programs do nothing, and the tracer's match no process.
package doctor
