#!/usr/bin/env bash
# suite.sh KERNEL...: runs all programs of `make test-vm` on each kernel, and fails if any part failed. VM_TABLE=FILE
# writes the results there as the table of docs/tested.md.
set -uo pipefail
cd "$(dirname "$0")/../.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
rows=
# part KERNEL WHAT [OPTIONS OF run.sh] -- PROGRAM ARGS...
part() {
	local kernel=$1 what=$2 status=0 passed result options=()
	shift 2
	while [ "$1" != -- ]; do options+=("$1") && shift; done
	shift
	printf '=== Linux %s: %s\n' "$kernel" "$what"
	SECONDS=0
	# The emulated processors are slow, and the tests' waits are bounded: one test at a time.
	hack/vm/run.sh "${options[@]}" "$kernel" "$@" -test.v -test.parallel 1 | tee "$log" || status=$?
	passed=$(grep -c '^ *--- PASS: ' "$log")
	result="$passed tests passed"
	if [ "$status" -ne 0 ] || [ "$passed" -eq 0 ] || grep -q '^ *--- SKIP: ' "$log"; then
		result="failed, $result" failed=1
	fi
	printf '=== Linux %s: %s: %s, %d s\n' "$kernel" "$what" "$result" "$SECONDS"
	rows+="| $(sed -n 's/^vm: kernel //p' "$log" | head -1) | $what | $result |"$'\n'
}
# The backends of each kernel, and the preferred one that uses BPF programs: tcx came with Linux 6.6.
declare -A engines=([6.1]=afpacket,clsact [6.12]=afpacket,clsact,tcx) bpf=([6.1]=clsact [6.12]=tcx)
for kernel in "$@"; do
	part "$kernel" 'each call of a trace recorded and measured, 32-bit calls counted, operations of io_urings, page faults, signals, the out-of-memory killer, connections with their bytes and ends; limits kept to the event, nothing left in the kernel' \
		--add build/vm/int80 --add build/vm/i386 --add build/vm/uring --add build/vm/x32 --add build/vm/fusehang --add build/vm/forkswap --add build/vm/answered --env SONDE_TEST_PROGRAMS=/vm -- \
		build/vm/trace.test -test.run '^Test(EachCallIsRecorded|CallsOf32Bits|CallsOfX32|IOUring.*|PageFaults|Signals|OOMKill|Connections|ConnectionsOnTheHostNetwork|ConnectionsOfMPTCP|ConnectionThatWaitsToBeAccepted|ConnectionsWithoutRoomForTheirOwner|InterruptedCallsOverMinLatency|InheritedDescriptors|DescriptorsThatChangeWhileTheTraceBegins|DescriptorThatChangesDuringAFork|DescriptorThatChangesDuringACall|ProcessWithoutItsFirstThread|FileThatNeverAnswers|CallThatSeccompAnswers|FirstCallThatSeccompAnswers|ThreadThatLeavesACommand|AIO|Limits|BrokenFile|NothingIsLeft|MovingProcess|ProcessOfAnotherPod)$'
	part "$kernel" 'gates opened from their node, by pidfd' --add build/vm/agent --env SONDE_TEST_AGENT=/vm/agent -- \
		build/vm/gate.test -test.short -test.run '^Test(EarlySignalIsHarmless|OpenWhenItWaits|Await|GateNeedsNothing|NoGate|SeveralGates|Stuck|OtherSignals)$'
	part "$kernel" 'all roles of the agent as processes of a node, traces and captures; the clock set in mid-capture' \
		--add build/vm/agent --env SONDE_TEST_AGENT=/vm/agent -- build/vm/agent.test -test.run '^Test(OnNode|ClockStep)$'
	part "$kernel" "captures by ${engines[$kernel]}: packets, filters, limits, overload, interfaces that come and go; what others have attached, and what a killed capture leaves" \
		--env "SONDE_TEST_ENGINES=${engines[$kernel]}" -- build/vm/capture.test -test.run '^Test(BlocksAreInTimeOrder|InterfaceOfAHighIndex|Engines|AutoFallsBack|PacketOnAQuiet.*|FilterAndNamedInterface|SnapLenCutsAndCounts|TwoCapturesSeeTheSame|Reasons|OpenRefuses|CloseWithoutRun|NextCapture.*|CaptureOf.*|Sweep.*|KilledAtTCX.*|KilledCapture.*|Foreign.*|CaptureIsBefore.*|LaterProgram.*|NoPlace.*|LimitsOverSeveralInterfaces|LateInterfaceThatCannot.*|DeletedInterface.*|InterfaceThat.*|OverloadIsCountedExactly|RingOfSeveralInterfaces|VLANTagsAreBackInPlace|PacketsToAllAreThereOnce|GSOFramesAreWhole|FileIsReadableAtAnyMoment)$'
	part "$kernel" 'the process on each packet: programs in C and Go, sockets that are older than the capture' \
		--add build/vm/sockets --env SONDE_TEST_PROGRAMS=/vm --env "SONDE_TEST_ENGINES=${engines[$kernel]}" -- \
		build/vm/capture.test -test.run '^TestProcesses$'
	part "$kernel" 'the process on each packet: sockets that change hands, io_urings, forks and descriptors without end' \
		--add build/vm/sockets --env SONDE_TEST_PROGRAMS=/vm -- \
		build/vm/processes.test -test.run '^Test(Processes.*|PortIsUsedAgain|NoProcess|LoopbackNamesTheReceiver)$'
	part "$kernel" 'programs of captures: their filter inlined or as a function, what wakes their reader, captures beside each other at clsact; scans beside processes that end' \
		--add build/vm/sockets --env SONDE_TEST_PROGRAMS=/vm -- build/vm/tc.test
	part "$kernel" "probes killed at seven moments at ${bpf[$kernel]}, in a Pod and on the host network: the next probe, or a sweep, leaves no filter, discipline, program or map" \
		--add build/vm/agent --env SONDE_TEST_AGENT=/vm/agent --env "SONDE_TEST_WANT_ENGINE=${bpf[$kernel]}" -- build/vm/agent.test -test.run '^TestKilled$'
	part "$kernel" "the search for a target's processes" -- build/vm/process.test
	part "$kernel" 'keepers kept from each other and from Pods of their node: by their users, by what Landlock the kernel has, and without it' -- \
		build/vm/keeper.test -test.run '^TestKeepersAreApart$'
	part "$kernel" "ports of a Pod steered to a carrier, in each privilege setting: addresses, established connections, restarts, dials; a carrier that was taken over reaches no other host; carrier and opener killed, frozen, stopped; nothing left" -- \
		build/vm/opener.test -test.run '^Test(Steer|Listens|TakenOver|OneCarrier|MissingRight|Dial.*)$'
	part "$kernel" "a carrier with a memory limit of cgroup v2, and callers that read nothing: it lives if it ends some of them, and only then" -- \
		build/vm/carrier.test -test.run '^TestSocketMemoryUnderALimit$'
	part "$kernel" 'filters translated to eBPF, run by the kernel: each instruction, also where its bytes are not in the linear part' -- \
		build/vm/ebpffilter.test -test.run '^Test(Translate|Inline|LinearPart)InKernel$'
	part "$kernel" 'filters of libpcap, translated to eBPF, run by the kernel: a sample of all primitives, and large ones' -- \
		build/vm/filters.test -test.run '^TestRecordedInKernel$'
done
[ -z "${VM_TABLE:-}" ] || printf '| kernel | what ran there | result |\n|---|---|---|\n%s' "$rows" >"$VM_TABLE"
exit "$failed"
