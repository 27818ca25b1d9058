// Package cli is the plugin for kubectl and oc: its commands, flags, exit codes and messages. The
// work lies in the packages below it.
package cli
