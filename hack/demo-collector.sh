#!/usr/bin/env bash
# demo-collector.sh: installs, changes and removes a tenant's OpenTelemetry Collector with the kind Collector
# (docs/collector.md). It prints each command before running it, so that users can type it again.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root"
. hack/demo/prepare.sh
prepare
ns=sonde-demo-collector
export PATH=$path:$PATH
image=docker.io/otel/opentelemetry-collector-contrib:0.161.0
if [ -n "$local_cluster" ]; then
	step "the OpenTelemetry Collector's image" make --no-print-directory image-collector
	"$cluster" load build/otelcol.tar
	image=sonde.local/otelcol:1
fi
mkdir -p build/demo
# manifest MEGABYTES writes the manifest with this size of a file.
manifest() {
	sed "s#IMAGE#$image#; s#MEGABYTES#$1#" hack/demo/collector.yaml >build/demo/collector.yaml
}
"${kubectl[@]}" delete namespace $ns --ignore-not-found >/dev/null

say "The admin of the tenant's namespace lets the operator run Helm in it."
run "kubectl$context create namespace $ns"
run "kubectl sonde$context collector open -n $ns"
say 'A platform engineer asks for the backend of the tenant.'
manifest 100
run "kubectl$context apply --server-side -f build/demo/collector.yaml"
run "kubectl$context wait -n $ns collector/acme --for=condition=Ready --timeout=120s"
run "kubectl$context get collectors,deployments,services,pvc,secrets,networkpolicies -n $ns"
say 'It receives OTLP and writes files.'
send='{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"hello"}]}]}]}'
port=$((30000 + RANDOM % 10000))
"${kubectl[@]}" port-forward -n $ns service/collector-demo $port:4318 >/dev/null &
forward=$!
trap 'kill $forward 2>/dev/null || true' EXIT
for _ in $(seq 50); do
	! curl -s "http://127.0.0.1:$port" >/dev/null || break
	sleep 0.1
done
run "curl -s http://127.0.0.1:$port/v1/traces -H 'Content-Type: application/json' -d '$send'"
say 'Other values: the operator upgrades the release.'
manifest 50
run "kubectl$context apply --server-side -f build/demo/collector.yaml"
run "kubectl$context wait -n $ns collector/acme --for=jsonpath='{.status.revision}'=2 --timeout=120s"
run "kubectl$context get collector acme -n $ns -o jsonpath='{range .status.history[*]}{.revision} {.chartVersion} {.status}{\"\\n\"}{end}'"
say 'Deleting the Collector deletes everything except the volume with the data.'
run "kubectl$context delete collector acme -n $ns"
gone() { [ -z "$("${kubectl[@]}" get deployments,services,networkpolicies,jobs,pods -n $ns -o name)$("${kubectl[@]}" get secrets -n $ns -l owner=helm -o name)" ]; }
for _ in $(seq 60); do
	! gone || break
	sleep 1
done
gone
run "kubectl$context get deployments,services,secrets,pods,pvc -n $ns"
how_to_reach $ns "kubectl sonde$context doctor"
how_to_remove "kubectl$context delete namespace $ns"
