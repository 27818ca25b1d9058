#!/usr/bin/env bash
# e2e.sh [go test flags]: installs the operator on the running local cluster and runs the end-to-end tests.
# SONDE_PROBE_PRIVILEGE=Capabilities runs the probes of all tests with that setting. SONDE_ENGINE=bpf|afpacket is the
# engine of all captures that name no other, and the tests check that it was used. SUITE=faults runs test/faults.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root"
export KUBECONFIG SONDE_AUDIT_LOG SONDE_ENGINE=${SONDE_ENGINE:-}
KUBECONFIG=$("$cluster" kubeconfig)
SONDE_AUDIT_LOG=$("$cluster" audit-log)
# A missing tool fails the tests instead of skipping them.
export REQUIRE_PRIVILEGED=1
export SONDE_CLUSTER=$cluster SONDE_PLUGIN=$root/bin/kubectl-sonde SONDE_INSTALL=$root/hack/install.sh SONDE_WORKLOAD=sonde.local/workload:1
"$cluster" load build/workload.tar build/otelcol.tar
[ ! -e build/registry.tar ] || "$cluster" load build/registry.tar # only the shard collector builds it
hack/install.sh
setting=SONDE_PROBE_PRIVILEGE- # unsets it
[ -z "${SONDE_PROBE_PRIVILEGE:-}" ] || setting=SONDE_PROBE_PRIVILEGE=$SONDE_PROBE_PRIVILEGE
"$cluster" kubectl -n sonde-system set env deployment/sonde-manager "$setting" >/dev/null
"$cluster" kubectl -n sonde-system rollout status deployment/sonde-manager --timeout=180s >/dev/null
suite=${SUITE:-e2e}
# One package at a time: they share the cluster.
go test -p 1 -tags "$suite" -count=1 -timeout 60m "$@" "./test/$suite/..."
