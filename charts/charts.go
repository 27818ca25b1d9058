// Package charts holds the Helm chart that Sonde brings along.
package charts

import "embed"

// CollectorDir is the directory of the chart in Collector.
const CollectorDir = "collector"

// Collector is the chart of an OpenTelemetry Collector, which the releaser installs for a Collector without a chart of its own.
//
//go:embed all:collector
var Collector embed.FS
