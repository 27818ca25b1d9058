// Package cli is the plugin for kubectl and oc: its commands, flags, messages and exit codes. The packages below it do
// the work.
package cli
