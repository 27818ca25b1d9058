package kernel

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// kernelWith makes a kernel's types with raw tracepoints.
func kernelWith(t *testing.T, tracepoints map[string][]btf.Type, more ...btf.Type) *btf.Spec {
	t.Helper()
	b, err := btf.NewBuilder(more, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, params := range tracepoints {
		proto := &btf.FuncProto{Return: &btf.Void{}, Params: []btf.FuncParam{{Type: pointerTo(&btf.Void{})}}}
		for _, p := range params {
			proto.Params = append(proto.Params, btf.FuncParam{Type: p})
		}
		if _, err := b.Add(&btf.Typedef{Name: "btf_trace_" + name, Type: pointerTo(proto)}); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func pointerTo(target btf.Type) btf.Type { return &btf.Pointer{Target: target} }

// The tracepoints of io_urings have had several arguments. Where they are not known, the trace says so.
func TestUringTracepoints(t *testing.T) {
	number, untyped := btf.Type(&btf.Int{Name: "u64", Size: 8}), pointerTo(&btf.Void{})
	request, ring := pointerTo(&btf.Struct{Name: "io_kiocb", Size: 8}), &btf.Struct{Name: "io_ring_ctx", Size: 8}
	entry, result := pointerTo(&btf.Const{Type: &btf.Struct{Name: "io_uring_sqe", Size: 64}}), pointerTo(&btf.Struct{Name: "io_uring_cqe", Size: 16})
	overflow := []btf.Type{untyped, number, number, number, untyped}
	for name, tc := range map[string]struct {
		tracepoints map[string][]btf.Type
		submission  string
		want        []string
		missing     bool
	}{
		"Linux 6.1": {
			map[string][]btf.Type{
				"io_uring_submit_sqe": {request, number}, "io_uring_complete": {untyped, untyped, number, number, number, number, number},
				"io_uring_cqe_overflow": overflow, "io_uring_req_failed": {entry, request, number},
			},
			"io_uring_submit_sqe",
			[]string{traceProgSondeUringEnd, traceProgSondeUringOverflow, traceProgSondeUringSubmit, traceProgSondeUringFailed},
			false,
		},
		"Linux 6.12": {
			map[string][]btf.Type{
				"io_uring_submit_req": {request}, "io_uring_complete": {untyped, untyped, number, number, number, number, number},
				"io_uring_cqe_overflow": overflow, "io_uring_req_failed": {entry, request, number},
			},
			"io_uring_submit_req",
			[]string{traceProgSondeUringEnd, traceProgSondeUringOverflow, traceProgSondeUringSubmit, traceProgSondeUringFailed},
			false,
		},
		"Linux 6.18": {
			map[string][]btf.Type{
				"io_uring_submit_req": {request}, "io_uring_complete": {pointerTo(ring), untyped, result},
				"io_uring_cqe_overflow": overflow, "io_uring_req_failed": {entry, request, number},
			},
			"io_uring_submit_req",
			[]string{traceProgSondeUringEndCqe, traceProgSondeUringOverflow, traceProgSondeUringSubmit, traceProgSondeUringFailed},
			false,
		},
		"Linux 5.14": {
			map[string][]btf.Type{
				"io_uring_submit_sqe": {untyped, untyped, number, number, number, number, number}, "io_uring_complete": {untyped, untyped, number, number, number},
			}, "", nil, true,
		},
		"none":           {nil, "", nil, true},
		"a new argument": {map[string][]btf.Type{"io_uring_submit_req": {request}, "io_uring_complete": {pointerTo(ring), untyped, untyped}, "io_uring_cqe_overflow": overflow}, "", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := findTracepoints(kernelWith(t, tc.tracepoints, ring), Events{Uring: true})
			if got.submission != tc.submission || !slices.Equal(got.programs, tc.want) || got.UringMissing() != tc.missing {
				t.Errorf("%+v", got)
			}
		})
	}
	t.Run("without io_urings", func(t *testing.T) {
		if got := findTracepoints(kernelWith(t, nil, &btf.Int{Name: "int", Size: 4}), Events{Uring: true}); got.UringMissing() || len(got.programs) > 0 {
			t.Errorf("%+v", got)
		}
	})
}
