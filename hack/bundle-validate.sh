#!/usr/bin/env bash
# bundle-validate.sh [DIR]: validates a bundle with the checks of OperatorHub and of the operator framework's suite.
# SDK is the built operator-sdk. Warnings count as errors, except those explained here.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:-./bundle}
: "${SDK:?run make bundle-validate}"
# RBAC has no versions, so a right to runtimeclasses looks like one to node.k8s.io/v1beta1, which Sonde never uses.
runtimeclasses='removed in v1\.25\. .* Migrate the API\(s\) for runtimeclasses: [^:]*$'
# operator-sdk calls its check operatorhub deprecated; the suite contains the new one. Both run.
deprecated='The \\"operatorhub\\" validator is deprecated'
for check in suite=operatorframework name=operatorhub; do
	out=$("$SDK" bundle validate "$dir" --select-optional "$check" 2>&1) || { echo "$out" >&2; exit 1; }
	if grep 'level=warn' <<<"$out" | grep -vE "$runtimeclasses|$deprecated" >&2; then
		echo "warnings of $check in $dir: fix config/manifests and run make bundle" >&2
		exit 1
	fi
	echo "$check: $(grep -o 'All validation tests.*successfully' <<<"$out")"
done
