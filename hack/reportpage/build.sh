#!/usr/bin/env bash
# Copies the chart library of package-lock.json to where the plugin embeds it. npm checks the package's checksum.
set -euo pipefail
cd "$(dirname "$0")"

if ! command -v npm >/dev/null; then
	echo "npm is missing: run make deps" >&2
	exit 1
fi
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
to=../../internal/cli/htmlreport/assets
cp node_modules/uplot/dist/uPlot.iife.min.js node_modules/uplot/dist/uPlot.min.css "$to/"
cp node_modules/uplot/LICENSE "$to/uPlot.LICENSE"
