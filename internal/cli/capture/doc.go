// Package capture is what the plugin does about one capture, be it of packets or a trace: it builds the request, follows
// the capture until it has ended, and saves its files. It knows no flags and no terminal: cobra lies
// above it, internal/cli/live and internal/cli/results beside it.
package capture
