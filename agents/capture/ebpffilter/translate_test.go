package ebpffilter_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/ebpffilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/test/filters/loadtest"
	"github.com/sonde-operator/sonde/test/filters/simulator"
	"github.com/sonde-operator/sonde/test/privileged"
)

// op makes an instruction other than a conditional jump.
func op(code int, k uint32) bpfprog.Instruction { return bpfprog.Instruction{Code: uint16(code), K: k} }

func jump(code int, k uint32, jt, jf uint8) bpfprog.Instruction {
	return bpfprog.Instruction{Code: uint16(unix.BPF_JMP | code), K: k, Jt: jt, Jf: jf}
}

// Opcodes that the tests use often.
const (
	ldb, ldh, ldw = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	ldbX, ldhX    = unix.BPF_LD | unix.BPF_B | unix.BPF_IND, unix.BPF_LD | unix.BPF_H | unix.BPF_IND
	ldwX          = unix.BPF_LD | unix.BPF_W | unix.BPF_IND
	ldi, ldxi     = unix.BPF_LD | unix.BPF_IMM, unix.BPF_LDX | unix.BPF_IMM
	ldm, ldxm     = unix.BPF_LD | unix.BPF_MEM, unix.BPF_LDX | unix.BPF_MEM
	ret, retA     = unix.BPF_RET | unix.BPF_K, unix.BPF_RET | unix.BPF_A
	tax, txa      = unix.BPF_MISC | unix.BPF_TAX, unix.BPF_MISC | unix.BPF_TXA
	alu, byX      = unix.BPF_ALU, unix.BPF_X
)

const (
	metadata  = 0xfffff000
	network   = 0xfff00000
	linkLayer = 0xffe00000
)

// frame has its offset in each byte, after an unused EtherType.
func frame() []byte {
	f := make([]byte, 100)
	for i := range f {
		f[i] = byte(i)
	}
	f[12], f[13] = 0x88, 0xb5
	return f
}

// returnA makes a program that runs the instructions and returns A.
func returnA(instructions ...bpfprog.Instruction) bpfprog.Program {
	return append(instructions, op(retA, 0))
}

// withAX makes a program that sets A and X, runs the instructions and returns A.
func withAX(a, x uint32, instructions ...bpfprog.Instruction) bpfprog.Program {
	return returnA(append(bpfprog.Program{op(ldi, a), op(ldxi, x)}, instructions...)...)
}

// programs are run on frame() and return want. The mark is 7 and the interface 5.
var programs = map[string]struct {
	program bpfprog.Program
	want    uint32
}{
	"constant":          {bpfprog.Program{op(ret, 262144)}, 262144},
	"largest constant":  {bpfprog.Program{op(ret, 0xffffffff)}, 0xffffffff},
	"A begins as 0":     {returnA(), 0},
	"X begins as 0":     {returnA(op(ldi, 9), op(txa, 0)), 0},
	"byte":              {returnA(op(ldb, 20)), 20},
	"half word":         {returnA(op(ldh, 20)), 20<<8 | 21},
	"word":              {returnA(op(ldw, 20)), 20<<24 | 21<<16 | 22<<8 | 23},
	"last word":         {returnA(op(ldw, 96)), 96<<24 | 97<<16 | 98<<8 | 99},
	"last byte":         {returnA(op(ldb, 99)), 99},
	"word beyond":       {append(bpfprog.Program{op(ldw, 97)}, op(ret, 1)), 0},
	"byte beyond":       {append(bpfprog.Program{op(ldb, 100)}, op(ret, 1)), 0},
	"far beyond":        {append(bpfprog.Program{op(ldb, 0x7ffffffe)}, op(ret, 1)), 0},
	"beyond direct":     {append(bpfprog.Program{op(ldw, 0x7ffe)}, op(ret, 1)), 0},
	"no offset":         {append(bpfprog.Program{op(ldb, 0x80000000)}, op(ret, 1)), 0},
	"after X":           {withAX(0, 10, op(ldbX, 20)), 30},
	"half after X":      {withAX(0, 10, op(ldhX, 20)), 30<<8 | 31},
	"word after X":      {withAX(0, 10, op(ldwX, 20)), 30<<24 | 31<<16 | 32<<8 | 33},
	"last after X":      {withAX(0, 95, op(ldwX, 1)), 96<<24 | 97<<16 | 98<<8 | 99},
	"beyond after X":    {append(withAX(0, 96, op(ldwX, 1)), op(ret, 1)), 0},
	"large X":           {withAX(0, 0xfff1, op(ldbX, 0)), 0},
	"larger X":          {withAX(0, 0x7ffffff0, op(ldbX, 0)), 0},
	"X + k wraps":       {withAX(0, 0xffffffff, op(ldbX, 21)), 20},
	"X + k wraps twice": {withAX(0, 21, op(ldbX, 0xffffffff)), 20},
	"X + k negative":    {bpfprog.Program{op(ldxi, 5), op(ldbX, 0xfffffffa), op(ret, 1)}, 0},
	"network":           {returnA(op(ldb, network+6)), 20},
	"network after X":   {withAX(0, 6, op(ldbX, network)), 20},
	"link layer":        {returnA(op(ldh, linkLayer+20)), 20<<8 | 21},
	"network beyond":    {bpfprog.Program{op(ldb, network+86), op(ret, 1)}, 0},
	"header length":     {returnA(op(unix.BPF_LDX|unix.BPF_B|unix.BPF_MSH, 22), op(txa, 0)), 24},
	"no header":         {bpfprog.Program{op(unix.BPF_LDX|unix.BPF_B|unix.BPF_MSH, 100), op(ret, 1)}, 0},
	"header keeps A":    {returnA(op(ldi, 9), op(unix.BPF_LDX|unix.BPF_B|unix.BPF_MSH, 22)), 9},
	"length":            {returnA(op(unix.BPF_LD|unix.BPF_W|unix.BPF_LEN, 0)), 100},
	"length in X":       {returnA(op(unix.BPF_LDX|unix.BPF_W|unix.BPF_LEN, 0), op(txa, 0)), 100},
	"memory":            {withAX(3, 4, op(unix.BPF_ST, 0), op(unix.BPF_STX, 15), op(ldm, 15), op(tax, 0), op(ldm, 0), op(alu|unix.BPF_SUB|byX, 0)), 0xffffffff},
	"all of memory":     {allOfMemory(), 0x76543210},
	"memory in X":       {withAX(3, 4, op(unix.BPF_ST, 7), op(ldxm, 7), op(txa, 0)), 3},

	"add wraps":          {withAX(0xffffffff, 0, op(alu|unix.BPF_ADD, 3)), 2},
	"add X":              {withAX(0xffffffff, 4, op(alu|unix.BPF_ADD|byX, 0)), 3},
	"subtract wraps":     {withAX(1, 0, op(alu|unix.BPF_SUB, 0xffffffff)), 2},
	"multiply wraps":     {withAX(0x10001, 0x10000, op(alu|unix.BPF_MUL|byX, 0)), 0x10000},
	"multiply K":         {withAX(7, 0, op(alu|unix.BPF_MUL, 6)), 42},
	"divide":             {withAX(0xfffffffe, 0, op(alu|unix.BPF_DIV, 2)), 0x7fffffff},
	"divide large":       {withAX(0xfffffffe, 0, op(alu|unix.BPF_DIV, 0xffffffff)), 0},
	"divide X":           {withAX(100, 7, op(alu|unix.BPF_DIV|byX, 0)), 14},
	"divide by zero":     {bpfprog.Program{op(ldi, 9), op(alu|unix.BPF_DIV|byX, 0), op(ret, 1)}, 0},
	"modulo":             {withAX(100, 0, op(alu|unix.BPF_MOD, 7)), 2},
	"modulo X":           {withAX(0xffffffff, 16, op(alu|unix.BPF_MOD|byX, 0)), 15},
	"modulo zero":        {bpfprog.Program{op(ldi, 9), op(alu|unix.BPF_MOD|byX, 0), op(ret, 1)}, 0},
	"or":                 {withAX(0x80000001, 0, op(alu|unix.BPF_OR, 0x80000010)), 0x80000011},
	"or X":               {withAX(1, 0xfffffff0, op(alu|unix.BPF_OR|byX, 0)), 0xfffffff1},
	"and":                {withAX(0xf0f0f0f0, 0, op(alu|unix.BPF_AND, 0xff00ff00)), 0xf000f000},
	"and X":              {withAX(0xf0f0f0f0, 0x80000000, op(alu|unix.BPF_AND|byX, 0)), 0x80000000},
	"xor":                {withAX(0xffffffff, 0, op(alu|unix.BPF_XOR, 0xfffffffe)), 1},
	"xor X":              {withAX(5, 6, op(alu|unix.BPF_XOR|byX, 0)), 3},
	"shift left":         {withAX(3, 0, op(alu|unix.BPF_LSH, 31)), 0x80000000},
	"shift left X":       {withAX(3, 4, op(alu|unix.BPF_LSH|byX, 0)), 48},
	"shift left 33":      {withAX(3, 33, op(alu|unix.BPF_LSH|byX, 0)), 6},
	"shift right":        {withAX(0x80000000, 0, op(alu|unix.BPF_RSH, 31)), 1},
	"shift right X":      {withAX(0x80000000, 30, op(alu|unix.BPF_RSH|byX, 0)), 2},
	"shift right 63":     {withAX(0x80000000, 63, op(alu|unix.BPF_RSH|byX, 0)), 1},
	"negate":             {withAX(1, 0, op(alu|unix.BPF_NEG, 0)), 0xffffffff},
	"back and forth":     {withAX(1, 0, op(tax, 0), op(ldi, 2), op(alu|unix.BPF_ADD|byX, 0)), 3},
	"dead code":          {bpfprog.Program{op(unix.BPF_JMP|unix.BPF_JA, 2), op(ldb, 4), op(ret, 5), op(ret, 6)}, 6},
	"dead after ret":     {bpfprog.Program{jump(unix.BPF_JEQ, 0, 0, 1), op(ret, 3), op(ret, 4), op(ldb, 1), op(ret, 5)}, 3},
	"both ways":          {bpfprog.Program{jump(unix.BPF_JEQ, 1, 1, 1), op(ret, 3), op(ret, 4)}, 4},
	"both ways on":       {bpfprog.Program{jump(unix.BPF_JSET, 1, 0, 0), op(ret, 4)}, 4},
	"set":                {bpfprog.Program{op(ldi, 0x80000000), jump(unix.BPF_JSET, 0x80000001, 0, 1), op(ret, 3), op(ret, 4)}, 3},
	"not set":            {bpfprog.Program{op(ldi, 2), jump(unix.BPF_JSET, 1, 0, 1), op(ret, 3), op(ret, 4)}, 4},
	"greater is not":     {bpfprog.Program{op(ldi, 7), jump(unix.BPF_JGT, 7, 1, 0), op(ret, 3), op(ret, 4)}, 3},
	"greater":            {bpfprog.Program{op(ldi, 0xffffffff), jump(unix.BPF_JGT, 0x7fffffff, 1, 0), op(ret, 3), op(ret, 4)}, 4},
	"at least":           {bpfprog.Program{op(ldi, 0xffffffff), jump(unix.BPF_JGE, 0xffffffff, 0, 1), op(ret, 3), op(ret, 4)}, 3},
	"equal, not greater": {bpfprog.Program{op(ldi, 7), jump(unix.BPF_JGT, 7, 0, 1), op(ret, 3), op(ret, 4)}, 4},
	"equal, so at least": {bpfprog.Program{op(ldi, 7), jump(unix.BPF_JGE, 7, 1, 0), op(ret, 3), op(ret, 4)}, 4},
	"less":               {bpfprog.Program{op(ldi, 6), jump(unix.BPF_JGE, 7, 0, 1), op(ret, 3), op(ret, 4)}, 4},
	"X is greater":       {bpfprog.Program{op(ldxi, 0xffffffff), jump(unix.BPF_JGT|byX, 0, 0, 1), op(ret, 3), op(ret, 4)}, 4},
	"X is set":           {bpfprog.Program{op(ldi, 6), op(ldxi, 4), jump(unix.BPF_JSET|byX, 0, 0, 1), op(ret, 3), op(ret, 4)}, 3},
	"A is X":             {bpfprog.Program{op(ldi, 6), op(tax, 0), jump(unix.BPF_JEQ|byX, 0, 1, 0), op(ret, 3), op(ret, 4)}, 4},
	"loaded both ways": {bpfprog.Program{
		op(ldb, 20), jump(unix.BPF_JEQ, 20, 0, 1), op(ldb, 30), op(tax, 0), op(ldbX, 1), op(retA, 0),
	}, 31},

	"protocol":      {returnA(op(ldh, metadata+0)), 0x88b5},
	"type":          {returnA(op(ldb, metadata+4)), unix.PACKET_OTHERHOST},
	"interface":     {returnA(op(ldw, metadata+8)), 1},
	"mark":          {returnA(op(ldw, metadata+20)), 7},
	"queue":         {returnA(op(ldw, metadata+24)), 0},
	"hash":          {returnA(op(ldw, metadata+32)), 0},
	"xor as load":   {withAX(5, 6, op(ldw, metadata+40)), 3},
	"no tag":        {returnA(op(ldw, metadata+48)), 0},
	"no tag's tag":  {returnA(op(ldw, metadata+44)), 0},
	"no tag's TPID": {returnA(op(ldw, metadata+60)), 0},
	"cpu":           {bpfprog.Program{op(ldw, metadata+36), jump(unix.BPF_JGT, 4096, 0, 1), op(ret, 3), op(ret, 4)}, 4},
	"random":        {bpfprog.Program{op(ldw, metadata+56), op(alu|unix.BPF_AND, 1), jump(unix.BPF_JGT, 1, 0, 1), op(ret, 3), op(ret, 4)}, 4},
}

// allOfMemory writes all words and then adds up the first eight, each shifted by its number.
func allOfMemory() bpfprog.Program {
	var p bpfprog.Program
	for k := range uint32(16) {
		p = append(p, op(ldi, k), op(unix.BPF_ST, k))
	}
	for k := range uint32(8) {
		p = append(p, op(ldm, k), op(alu|unix.BPF_LSH, 4*k), op(alu|unix.BPF_OR|byX, 0), op(tax, 0))
	}
	return returnA(p...)
}

func simulated() *simulator.Packet {
	return &simulator.Packet{
		Data: frame(), Linear: 100, Network: 14, Protocol: 0x88b5, Type: unix.PACKET_OTHERHOST, Interface: 1, Mark: 7,
	}
}

// TestTranslate runs each program in the simulators.
func TestTranslate(t *testing.T) {
	for name, tc := range programs {
		t.Run(name, func(t *testing.T) {
			reference, err := simulator.Classic(tc.program, simulated())
			if err != nil || reference != tc.want {
				t.Errorf("as classic BPF: %#x, %v, want %#x", reference, err, tc.want)
			}
			for what, options := range map[string][]ebpffilter.Option{
				"direct loads": {ebpffilter.AtIngress()}, "other loads": {ebpffilter.AtIngress(), ebpffilter.WithoutDirectLoads()},
			} {
				body, err := ebpffilter.Translate(tc.program, options...)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := simulator.Run(body, simulated()); err != nil || got != tc.want {
					t.Errorf("with %s: %#x, %v, want %#x\n%v", what, got, err, tc.want, body)
				}
			}
			checkInline(t, tc.program, simulated(), tc.want)
		})
	}
}

// TestTranslateInKernel runs each program in the kernel.
func TestTranslateInKernel(t *testing.T) {
	privileged.Need(t)
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		tc := programs[name]
		t.Run(name, func(t *testing.T) {
			runInKernel(t, tc.program, tc.want)
			if strings.Contains(name, "after X") || strings.Contains(name, "beyond") || strings.Contains(name, "wraps") {
				runInKernel(t, tc.program, tc.want, ebpffilter.WithoutDirectLoads())
			}
		})
	}
}

func runInKernel(t *testing.T, program bpfprog.Program, want uint32, options ...ebpffilter.Option) {
	t.Helper()
	body, err := ebpffilter.Translate(program, append(options, ebpffilter.AtIngress())...)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := loadtest.Load(t, body)
	if err != nil {
		t.Fatalf("load: %+v\n%v", err, body)
	}
	if got, err := loadtest.Run(loaded, frame(), 7); err != nil || got != want {
		t.Errorf("%#x, %v, want %#x\n%v", got, err, want, body)
	}
}

func TestTranslateDirection(t *testing.T) {
	program := returnA(op(ldw, metadata+4))
	if _, err := ebpffilter.Translate(program); !errors.Is(err, ebpffilter.ErrDirection) {
		t.Errorf("without a direction: %v", err)
	}
	for want, direction := range map[uint32]ebpffilter.Option{
		unix.PACKET_OTHERHOST: ebpffilter.AtIngress(), unix.PACKET_OUTGOING: ebpffilter.AtEgress(),
	} {
		body, err := ebpffilter.Translate(program, direction)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := simulator.Run(body, simulated()); err != nil || got != want {
			t.Errorf("%d, %v, want %d", got, err, want)
		}
	}
}

// TestTranslateVlan reads a VLAN tag that the device removed, which BPF_PROG_TEST_RUN cannot provide.
func TestTranslateVlan(t *testing.T) {
	packet := simulated()
	packet.VlanPresent, packet.VlanTag, packet.VlanProto = 1, 0x6064, unix.ETH_P_8021AD
	for k, want := range map[uint32]uint32{44: 0x6064, 48: 1, 60: unix.ETH_P_8021AD, 0: 0x88b5} {
		body, err := ebpffilter.Translate(returnA(op(ldh, metadata+k)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := simulator.Run(body, packet); err != nil || got != want {
			t.Errorf("metadata %d: %#x, %v, want %#x", k, got, err, want)
		}
	}
}

// TestLinearPart cuts the linear part at each byte: bytes outside are still read.
func TestLinearPart(t *testing.T) {
	for name, tc := range programs {
		if strings.Contains(name, "network") || strings.Contains(name, "link layer") {
			continue // as in the kernel's filters, these loads read only the linear part
		}
		body, err := ebpffilter.Translate(tc.program, ebpffilter.AtIngress())
		if err != nil {
			t.Fatal(err)
		}
		for linear := 14; linear <= 100; linear++ {
			packet := simulated()
			packet.Linear = linear
			if got, err := simulator.Run(body, packet); err != nil || got != tc.want {
				t.Errorf("%s with %d linear bytes: %#x, %v, want %#x", name, linear, got, err, tc.want)
			}
		}
	}
}

func TestTranslateRefuses(t *testing.T) {
	long := make(bpfprog.Program, 4094)
	for i := range long {
		long[i] = op(ldwX, 0)
	}
	tooLong := append(bpfprog.Program{jump(unix.BPF_JEQ, 0, 0, 1), op(unix.BPF_JMP|unix.BPF_JA, 4092)}, append(long[:4093], op(ret, 1))...)
	for name, tc := range map[string]struct {
		program bpfprog.Program
		want    string
	}{
		"nothing":             {nil, "is empty"},
		"no return":           {bpfprog.Program{op(ldi, 1)}, "does not end with a return"},
		"jump past the end":   {bpfprog.Program{jump(unix.BPF_JEQ, 0, 0, 1), op(ret, 1)}, "instruction 0 (21 0 1 0): jump past the end"},
		"division by zero":    {withAX(1, 1, op(alu|unix.BPF_DIV, 0)), "division by zero"},
		"large shift":         {withAX(1, 1, op(alu|unix.BPF_LSH, 32)), "shift out of range"},
		"unknown opcode":      {returnA(op(0xff, 0)), "unknown opcode"},
		"unwritten memory":    {returnA(op(ldm, 3)), "instruction 0 (96 0 0 3): it may read scratch memory that was not written"},
		"unwritten on a path": {returnA(jump(unix.BPF_JEQ, 0, 0, 1), op(unix.BPF_ST, 3), op(ldm, 3)), "instruction 2 (96 0 0 3): it may read scratch"},
		"netlink attributes":  {returnA(op(ldw, metadata+12)), "instruction 0 (32 0 0 4294963212) cannot be translated: it loads netlink attributes"},
		"hardware type":       {returnA(op(ldw, metadata+28)), "hardware type"},
		"payload":             {returnA(op(ldw, metadata+52)), "payload's offset"},
		"metadata of no name": {returnA(op(ldw, metadata+64)), "unknown metadata"},
		"odd metadata":        {returnA(op(ldw, metadata+1)), "unknown metadata"},
		"too long a jump":     {tooLong, "the program is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := ebpffilter.Translate(tc.program)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%d instructions, error %v, want %q", len(body), err, tc.want)
			}
		})
	}
}
