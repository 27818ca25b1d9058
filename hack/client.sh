#!/usr/bin/env bash
# client.sh: generates the typed client of all kinds in client/. The CRDs must be generated before.
set -euo pipefail
cd "$(dirname "$0")/.."
module=$(go list -m)
api=$module/api/v1alpha1
tool() { go tool -modfile=hack/tools/go.mod "$@"; }
rm -rf client/applyconfiguration client/clientset client/listers client/informers
schema=$(mktemp)
trap 'rm -f "$schema"' EXIT
go run ./hack/clientschema config/crd/bases >"$schema"
tool applyconfiguration-gen --openapi-schema "$schema" --output-dir client/applyconfiguration --output-pkg "$module/client/applyconfiguration" "$api"
tool client-gen --clientset-name versioned --input-base '' --input "$api" \
	--apply-configuration-package "$module/client/applyconfiguration" \
	--output-dir client/clientset --output-pkg "$module/client/clientset"
tool lister-gen --output-dir client/listers --output-pkg "$module/client/listers" "$api"
tool informer-gen --single-directory --versioned-clientset-package "$module/client/clientset/versioned" \
	--listers-package "$module/client/listers" \
	--output-dir client/informers --output-pkg "$module/client/informers" "$api"
