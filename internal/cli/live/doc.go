// Package live shows a capture while it runs: one line for each Pod, redrawn in place on a terminal, and time-stamped
// lines elsewhere. Its input is a View, a plain value, and a pure function turns that into lines.
package live
