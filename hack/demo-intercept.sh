#!/usr/bin/env bash
# demo-intercept.sh: a process in a network namespace of its own, the laptop, answers requests to a Service in the cluster
# (docs/intercept.md). The laptop reaches nothing but the API server, by TCP. The script prints each command before it runs.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root"
. hack/demo/prepare.sh
if [ -z "$local_cluster" ]; then
	echo "this demo makes network namespaces on the machine of the local cluster: run it without KUBE_CONTEXT" >&2
	exit 2
fi
ns=sonde-demo-intercept
prepare
export PATH=$path:$PATH
laptop=sonde-laptop
api_port=$(sed -n 's#.*server: https://127.0.0.1:##p' "$("$cluster" kubeconfig)")

# The laptop: a network namespace whose only way out leads to the API server.
clean_up() {
	local pid
	for pid in ${plugin:-} ${server:-}; do kill "$pid" 2>/dev/null || true; done
	wait 2>/dev/null || true
	ip netns delete $laptop 2>/dev/null || true
	ip link delete $laptop 2>/dev/null || true
	nft delete table ip $laptop 2>/dev/null || true
}
trap clean_up EXIT
clean_up
ip netns add $laptop
ip link add $laptop type veth peer name eth0 netns $laptop
ip addr add 169.254.77.1/30 dev $laptop
ip link set $laptop up
ip -n $laptop addr add 169.254.77.2/30 dev eth0
ip -n $laptop link set eth0 up
ip -n $laptop link set lo up
echo 1 >/proc/sys/net/ipv4/conf/$laptop/route_localnet
nft -f - <<NFT
table ip $laptop {
	chain to_api { type nat hook prerouting priority dstnat; iifname "$laptop" tcp dport 6443 dnat to 127.0.0.1:$api_port; }
	chain alone { type filter hook input priority filter - 1; iifname "$laptop" meta l4proto != tcp drop; }
}
NFT
sed "s#https://127.0.0.1:$api_port#https://169.254.77.1:6443\n    tls-server-name: 127.0.0.1#" "$("$cluster" kubeconfig)" >build/demo/laptop.kubeconfig
# on_laptop COMMAND... & runs it there; the job's pid is the command's.
on_laptop() { KUBECONFIG=$root/build/demo/laptop.kubeconfig exec ip netns exec $laptop unshare --uts sh -c 'hostname laptop; exec "$@"' sh "$@"; }

# Pods of an earlier run stay. An intercept of one that was killed would refuse this one.
"${kubectl[@]}" delete interceptrequests --all -n $ns >/dev/null 2>&1
sed "s#sonde.local/workload:1#$workload_image#; s#sonde-demo#$ns#" hack/demo/workload.yaml >build/demo/intercept.yaml
run "kubectl apply --server-side -f build/demo/intercept.yaml"
run "kubectl rollout status -n $ns deployment/web deployment/client --timeout=120s"
say 'The Service is answered by the Pods of the Deployment web. The Deployment client sends it about 40 requests each second.'
run "kubectl exec -n $ns deploy/client -- /workload get -url http://web/"

say 'On the laptop, a new version of the service listens on port 8080:'
printf '\n$ workload serve -listen 127.0.0.1:8080\n'
on_laptop bin/linux_amd64/workload serve -listen 127.0.0.1:8080 &
server=$!
start=$SECONDS
say 'There, one command takes the requests with a certain header:'
printf '\n$ kubectl sonde intercept deploy/web -n %s --port 8080 --to 127.0.0.1:8080 --header x-developer=alice\n' $ns
on_laptop bin/kubectl-sonde intercept deploy/web -n $ns --port 8080 --to 127.0.0.1:8080 --header x-developer=alice >build/demo/intercept.log 2>&1 &
plugin=$!
for _ in $(seq 300); do
	phase=$("${kubectl[@]}" get interceptrequests -n $ns -o 'jsonpath={.items[*].status.conditions[?(@.type=="Intercepted")].status}{.items[*].status.phase}')
	[ "$phase" != TrueActive ] || break
	kill -0 $plugin 2>/dev/null || break
	sleep 0.2
done
cat build/demo/intercept.log
[ "$phase" = TrueActive ] || { "${kubectl[@]}" get interceptrequests -n $ns -o yaml; exit 1; }
printf '    active after %d s\n' $((SECONDS - start))
run "kubectl get interceptrequests -n $ns"
answers() { # answers WHO [FLAGS]: the Service is answered by WHO
	local who=$1 got
	shift
	run "kubectl exec -n $ns deploy/client -- /workload get -url http://web/ $*" | tee build/demo/answer
	got=$(tail -1 build/demo/answer)
	case $got in $who) ;; *) echo "answered by $got, want $who" >&2; exit 1 ;; esac
}
say 'Requests with the header are answered on the laptop, all others by the Pods.'
answers laptop -header x-developer=alice
answers 'web-*'
say 'The command ends, and the Pods answer everything.'
kill $plugin
wait $plugin || true
plugin=
answers 'web-*' -header x-developer=alice
run "kubectl get interceptrequests -n $ns"
say 'No Pod was restarted or changed:'
run "kubectl get pods -n $ns"
say 'To try it by hand, see "Try it on the local cluster" in docs/intercept.md. Your process then prints the name of this machine.'
how_to_reach $ns "kubectl sonde intercept deploy/web -n $ns --port 8080 --header x-developer=alice"
how_to_remove "kubectl delete namespace $ns"
