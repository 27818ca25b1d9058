#!/usr/bin/env bash
# e2e.sh [go test flags]: installs the operator on the local cluster, which is up, and runs the end-to-end tests. With
# SONDE_PROBE_PRIVILEGE=Capabilities the probes of all tests run so; with SONDE_ENGINE=bpf|afpacket it takes the packets of all captures
# that do not name another, and each is seen to have been taken by it. SUITE=faults runs the tests of test/faults.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root"
export KUBECONFIG SONDE_AUDIT_LOG SONDE_ENGINE=${SONDE_ENGINE:-}
KUBECONFIG=$("$cluster" kubeconfig)
SONDE_AUDIT_LOG=$("$cluster" audit-log)
# Here a tool that is missing is a failure, never a skip.
export REQUIRE_PRIVILEGED=1
export SONDE_CLUSTER=$cluster SONDE_PLUGIN=$root/bin/kubectl-sonde SONDE_INSTALL=$root/hack/install.sh SONDE_WORKLOAD=sonde.local/workload:1
"$cluster" load build/workload.tar
hack/install.sh
setting=SONDE_PROBE_PRIVILEGE- # takes it off
[ -z "${SONDE_PROBE_PRIVILEGE:-}" ] || setting=SONDE_PROBE_PRIVILEGE=$SONDE_PROBE_PRIVILEGE
"$cluster" kubectl -n sonde-system set env deployment/sonde-manager "$setting" >/dev/null
"$cluster" kubectl -n sonde-system rollout status deployment/sonde-manager --timeout=180s >/dev/null
suite=${SUITE:-e2e}
# One package at a time: they share the cluster.
go test -p 1 -tags "$suite" -count=1 -timeout 40m "$@" "./test/$suite/..."
