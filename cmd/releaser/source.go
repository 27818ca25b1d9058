package main

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"sigs.k8s.io/yaml"

	"github.com/sonde-operator/sonde/charts"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

// embedded returns the files of the chart that comes with the releaser.
func embedded(_ context.Context, chart release.Chart) ([]*archive.BufferedFile, error) {
	var files []*archive.BufferedFile
	err := fs.WalkDir(charts.Collector, charts.CollectorDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(charts.Collector, path)
		files = append(files, &archive.BufferedFile{Name: strings.TrimPrefix(path, charts.CollectorDir+"/"), Data: b})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the embedded chart: %w", err)
	}
	return files, checkVersion(files, chart.Version)
}

// checkVersion reports whether the embedded chart has a version that was asked for.
func checkVersion(files []*archive.BufferedFile, version string) error {
	if version == "" {
		return nil
	}
	wanted, err := semver.NewConstraint(version)
	if err != nil {
		return &problem{reason: release.ReasonChartNotFound, text: fmt.Sprintf("collector.version %q is no version: write one like 1.2.0, or a range like ~1.2", version)}
	}
	for _, f := range files {
		if f.Name != "Chart.yaml" {
			continue
		}
		var chart struct {
			Version string `json:"version"`
		}
		if err := yaml.Unmarshal(f.Data, &chart); err != nil {
			return fmt.Errorf("read the embedded chart: %w", err)
		}
		has, err := semver.NewVersion(chart.Version)
		if err != nil {
			return fmt.Errorf("read the embedded chart: %w", err)
		}
		if !wanted.Check(has) {
			return &problem{reason: release.ReasonChartNotFound, text: fmt.Sprintf(
				"no chart has version %s: the embedded one is %s. Write this version into collector.version, or leave it out", version, chart.Version)}
		}
	}
	return nil
}
