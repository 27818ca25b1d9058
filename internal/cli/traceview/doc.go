// Package traceview shows traces to people: a line for each event as it comes, and a summary of all of them at the end.
// Its input is foreign: whatever names and files a traced program made up, nothing of it reaches the terminal as a command.
package traceview
