// Command otelcol is the OpenTelemetry Collector with the few components that Sonde's tests need, built from the
// published modules as upstream's builder does: what the tests send is then judged by the real receiver.
package main

import (
	"errors"
	"os"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/healthcheckextension"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

func main() {
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		// The version is that of the components in go.mod: a bug found here is then looked up under the right release.
		BuildInfo: component.BuildInfo{Command: "otelcol", Description: "OpenTelemetry Collector of Sonde's tests", Version: "0.161.0"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory(), envprovider.NewFactory(), yamlprovider.NewFactory()},
			DefaultScheme:     "env", // what ${NAME} means, as in the released collectors
		}},
	})
	if err := command.Execute(); err != nil { // Cobra has printed it
		os.Exit(1)
	}
}

// factories returns the components that a configuration can name.
func factories() (otelcol.Factories, error) {
	receivers, err := otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	processors, err2 := otelcol.MakeFactoryMap[processor.Factory](batchprocessor.NewFactory())
	exporters, err3 := otelcol.MakeFactoryMap[exporter.Factory](
		debugexporter.NewFactory(), fileexporter.NewFactory(), otlpexporter.NewFactory(), otlphttpexporter.NewFactory())
	extensions, err4 := otelcol.MakeFactoryMap[extension.Factory](healthcheckextension.NewFactory())
	return otelcol.Factories{
		Receivers:  receivers,
		Processors: processors,
		Exporters:  exporters,
		Extensions: extensions,
		// Without it the service's own logs and metrics have no provider, and it does not start.
		Telemetry: otelconftelemetry.NewFactory(),
	}, errors.Join(err, err2, err3, err4)
}
