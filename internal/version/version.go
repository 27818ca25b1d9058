// Package version holds the version of Sonde that a binary was built as.
package version

// Version is set by the linker (see the Makefile); "dev" in a plain go build.
var Version = "dev"
