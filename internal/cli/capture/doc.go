// Package capture runs one PacketCapture or Trace for the plugin: it builds the object, follows it until it has ended,
// and saves its files. It knows neither flags nor terminals; internal/cli and internal/cli/live do.
package capture
