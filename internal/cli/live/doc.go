// Package live shows a capture while it runs: one line per Pod, redrawn in place on a terminal, and
// written as time-stamped lines anywhere else. What is shown is a View, a plain value; turning it
// into lines is a pure function.
package live
