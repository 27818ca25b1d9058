// Command registry is the registry that the end-to-end tests of Collectors pull charts from: CNCF Distribution with its storage in memory.
// Its argument is a configuration file.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func run() error {
	f, err := os.Open(os.Args[1])
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	defer f.Close()
	config, err := configuration.Parse(f)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	r, err := registry.NewRegistry(context.Background(), config)
	if err != nil {
		return fmt.Errorf("start the registry: %w", err)
	}
	return r.ListenAndServe()
}
