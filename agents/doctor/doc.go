// Package doctor tries which of Sonde's operations a node's kernel allows. It loads and attaches programs and removes
// them at once. The programs do nothing, and the tracer's match no process.
package doctor
