// Command write prints the manifest with which a cluster admin grants OLM v1 the rights to install the bundle in a
// directory.
package main

import (
	"fmt"
	"os"

	"github.com/sonde-operator/sonde/test/installer"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: write BUNDLE > config/olmv1/installer.yaml (make bundle does it)")
		os.Exit(2)
	}
	manifests, err := installer.Manifests(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "write:", err)
		os.Exit(1)
	}
	fmt.Printf("# Generated from bundle/ by make bundle.\n%s", manifests)
}
