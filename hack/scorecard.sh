#!/usr/bin/env bash
# scorecard.sh: runs operator-sdk's scorecard on the bundle, in the running local cluster. The tests run from an image with
# their pinned program, loaded under the name in the bundle's configuration, so that nothing is pulled. SDK and SCORECARD_TEST are the built programs.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root"
: "${SDK:?run make scorecard}" "${SCORECARD_TEST:?run make scorecard}"
[ -n "$local_cluster" ] || { echo "scorecard runs on the local cluster only: leave KUBE_CONTEXT out" >&2; exit 2; }
namespace=sonde-scorecard
# The cluster's own busybox image names no user, which pod security "restricted" refuses.
untar=sonde.local/untar:1
config=bundle/tests/scorecard/config.yaml
image=$(sed -n 's/^ *image: //p' "$config" | sort -u)
want=$(grep -c '^ *image: ' "$config")
mkdir -p build
"$cluster" image -o build/scorecard-test.tar --name "$image" --user 65532:65532 --entrypoint /usr/bin/scorecard-test "usr/bin/scorecard-test=$SCORECARD_TEST"
"$cluster" image -o build/untar.tar --name "$untar" --user 65532:65532 "bin/tar=$(command -v busybox)"
"$cluster" load build/scorecard-test.tar build/untar.tar
remove() { "${kubectl[@]}" delete namespace "$namespace" --ignore-not-found >/dev/null; }
trap remove EXIT
remove
"${kubectl[@]}" create namespace "$namespace" >/dev/null
"${kubectl[@]}" label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
status=0
"$SDK" scorecard ./bundle --kubeconfig "$("$cluster" kubeconfig)" --namespace "$namespace" --service-account default \
	--pod-security restricted --untar-image "$untar" --storage-image "$untar" --wait-time 180s >build/scorecard.txt 2>&1 || status=$?
# The program prints whole CRDs, so the full output stays in the file.
grep -E '^[[:space:]]*(Name|State|Errors):' build/scorecard.txt | paste -sd ' ' | sed 's/Name:/\n&/g' | tr -d '\t'
got=$(grep -c '^[[:space:]]*State: pass$' build/scorecard.txt || true)
if [ "$status" -ne 0 ] || [ "$got" -ne "$want" ]; then
	grep -A2 'Errors:' build/scorecard.txt >&2 || true
	echo "scorecard: $got of $want tests passed (build/scorecard.txt): fix config/manifests and run make bundle" >&2
	exit 1
fi
# Examples are objects that users apply, so they have no status.
if sed -n '/^[[:space:]]*Suggestions:/,/^[[:space:]]*\(Log:\)\?$/p' build/scorecard.txt | grep -vE '^[[:space:]]*(Suggestions:|Log:)?$|does not have status spec' >&2; then
	echo "scorecard suggests the above, which counts as a failure: do it, or list it here with the reason" >&2
	exit 1
fi
echo "scorecard: $got of $want tests passed"
