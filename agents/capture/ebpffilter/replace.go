package ebpffilter

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Replace replaces a function's body in a compiled program by a result of Translate. The kernel verifies the function
// separately, once. In C the function must be
//
//	__attribute__((noinline)) int accepts(struct __sk_buff *skb)
//	{
//		int all = 1;
//
//		asm volatile("" : "+r"(all) : "r"(skb));
//		return all;
//	}
//
// It must not be static, because the kernel would verify it again for each call. Without the asm the compiler would
// inline the constant result. The other functions stay as they are; calls refer to functions by name. On an error the
// program is unchanged.
func Replace(spec *ebpf.ProgramSpec, function string, body asm.Instructions) error {
	if len(body) == 0 {
		return fmt.Errorf("replace function %s: the body is empty", function)
	}
	begin, end := bounds(spec.Instructions, function)
	if begin == end {
		return fmt.Errorf("replace function %s: program %s does not have it", function, spec.Name)
	}
	first := spec.Instructions[begin]
	info := btf.FuncMetadata(&first)
	switch {
	case begin == 0:
		return fmt.Errorf("replace function %s: it is the program itself", function)
	case info == nil:
		return fmt.Errorf("replace function %s: it has no type information, which the kernel needs for a function of its own", function)
	case info.Linkage != btf.GlobalFunc:
		return fmt.Errorf("replace function %s: it is static, make it global", function)
	}
	if err := checkType(info); err != nil {
		return fmt.Errorf("replace function %s: %w", function, err)
	}
	// Keep only the type information and the source: a CO-RE relocation would change our instruction.
	replaced := btf.WithFuncMetadata(body[0].WithSymbol(function), info).WithSource(first.Source())
	out := make(asm.Instructions, 0, len(spec.Instructions)-(end-begin)+len(body))
	out = append(out, spec.Instructions[:begin]...)
	out = append(out, replaced)
	out = append(out, body[1:]...)
	spec.Instructions = append(out, spec.Instructions[end:]...)
	return nil
}

// bounds finds a function's instructions. In a compiled program only the first one of a function has a symbol.
func bounds(instructions asm.Instructions, function string) (begin, end int) {
	for i := range instructions {
		if function == "" || instructions[i].Symbol() != function {
			continue
		}
		end = i + 1
		for end < len(instructions) && instructions[end].Symbol() == "" {
			end++
		}
		return i, end
	}
	return 0, 0
}

// checkType returns why a translated filter cannot be this function.
func checkType(function *btf.Func) error {
	proto, ok := function.Type.(*btf.FuncProto)
	if !ok || len(proto.Params) != 1 {
		return errors.New("it does not take one argument, the packet")
	}
	if pointer, ok := btf.UnderlyingType(proto.Params[0].Type).(*btf.Pointer); !ok || !isPacket(pointer.Target) {
		return errors.New("its argument is not a struct __sk_buff *")
	}
	if result, ok := btf.UnderlyingType(proto.Return).(*btf.Int); !ok || result.Size != 4 {
		return errors.New("it does not return an int")
	}
	return nil
}

func isPacket(t btf.Type) bool {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		return t.Name == "__sk_buff"
	case *btf.Fwd:
		return t.Name == "__sk_buff"
	default:
		return false
	}
}
