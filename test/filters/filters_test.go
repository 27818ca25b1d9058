package filters

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/ebpffilter"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/test/filters/loadtest"
	"github.com/sonde-operator/sonde/test/filters/simulator"
)

var (
	wantExpressions = flag.Int("expressions", 250, "number of expressions to compare for Ethernet; half as many for raw IP")
	seed            = flag.Uint64("seed", 1, "seed for the combined expressions")
)

// Loads from metadata (SKF_AD_OFF and above) read what the kernel knows about a packet. These are the ones that libpcap
// uses.
const (
	metadata     = 0xfffff000
	ofType       = 4
	ofInterface  = 8
	ofTag        = 44
	ofTagPresent = 48
)

// expression is a compiled expression.
type expression struct {
	text string
	// primitive is the name of the primitive; empty for combined expressions.
	primitive string
	program   bpfprog.Program
}

// TestDifferential compares the verdicts of translated filters with libpcap's interpreter on the same program.
// If a packet can come from a file, it also compares them with the program that libpcap compiles for files.
func TestDifferential(t *testing.T) {
	program := buildOracle(t)
	for name, link := range map[string]pcapfilter.LinkType{"ethernet": pcapfilter.LinkEthernet, "raw": pcapfilter.LinkRaw} {
		t.Run(name, func(t *testing.T) {
			packets := packetsOf(t, link)
			oracle := startOracle(t, program, packets)
			all := compiled(t, link, count(link))
			c := comparison{packets: packets, oracle: oracle, link: link, random: rand.New(rand.NewPCG(*seed, 2))}
			for _, e := range all {
				c.compare(t, e)
			}
			c.checkPrimitives(t)
			t.Logf("%s: %d expressions x %d packets, %d of them cut, from VLAN devices or outgoing, each filter on one in %d: %d results compared with libpcap's interpreter, "+
				"%d with programs of libpcap's for files; %d expressions are only for live interfaces, %d load what libpcap's interpreter has not, "+
				"%d cannot be translated",
				name, len(all), len(packets), len(packets)-len(allFrames(t)), step, c.programs, c.files, c.live, c.odd, c.untranslated)
		})
	}
}

func count(link pcapfilter.LinkType) int {
	if link == pcapfilter.LinkRaw {
		return *wantExpressions / 2
	}
	return *wantExpressions
}

// shared is one compiler for all tests: it takes longer to load than many filters, above all under the race detector.
var shared = sync.OnceValues(func() (*pcapfilter.Compiler, error) { return pcapfilter.New(pcapfilter.Most) })

func sharedCompiler(t *testing.T) *pcapfilter.Compiler {
	t.Helper()
	compiler, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return compiler
}

// compiled returns all forms of all primitives, and then combinations of them, at least n.
func compiled(t *testing.T, link pcapfilter.LinkType, n int) []expression {
	t.Helper()
	compiler := sharedCompiler(t)
	var all []expression
	known := make(map[string]bool)
	for _, primitive := range slices.Sorted(maps.Keys(primitives)) {
		for _, form := range primitives[primitive] {
			for _, text := range forms(form) {
				if link == pcapfilter.LinkRaw && onlyEthernet(text) {
					continue
				}
				program, err := compiler.Compile(t.Context(), text, link, 0)
				switch {
				case err == nil && !known[text]:
					all = append(all, expression{text, primitive, program})
					known[text] = true
				case err != nil && link == pcapfilter.LinkEthernet:
					t.Errorf("%s: %v", primitive, err)
				}
			}
		}
	}
	single := len(all)
	random := rand.New(rand.NewPCG(*seed, 1))
	refused := make(map[string]int)
	for len(all) < n {
		text := together(random, all[:single])
		program, err := compiler.Compile(t.Context(), text, link, 0)
		if refusal, ok := errors.AsType[*pcapfilter.SyntaxError](err); ok {
			refused[refusal.Message]++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !known[text] {
			all = append(all, expression{text: text, program: program})
			known[text] = true
		}
	}
	for _, why := range slices.Sorted(maps.Keys(refused)) {
		t.Logf("libpcap refused %d combined expressions: %s", refused[why], why)
	}
	return all
}

// together combines two to four expressions.
func together(random *rand.Rand, of []expression) string {
	var b strings.Builder
	for i := range 2 + random.IntN(3) {
		if i > 0 {
			b.WriteString([]string{" and ", " or ", " and not ", " or not "}[random.IntN(4)])
		}
		text := of[random.IntN(len(of))].text
		if random.IntN(3) > 0 {
			text = "(" + text + ")"
		}
		b.WriteString(text)
	}
	return b.String()
}

// comparison counts its results.
type comparison struct {
	link     pcapfilter.LinkType
	packets  []packet
	oracle   *oracle
	random   *rand.Rand
	verdicts map[string][2]int // by primitive: refused, accepted
	useless  []string          // forms that accept all packets, or none

	programs, files, live, odd, untranslated int
}

func (c *comparison) compare(t *testing.T, e expression) {
	t.Helper()
	in, err := ebpffilter.Translate(e.program, ebpffilter.AtIngress())
	if err != nil && e.primitive == "" && strings.Contains(err.Error(), "cannot be translated") {
		t.Logf("%s: %v", e.text, err)
		c.untranslated++
		return
	}
	out, err2 := ebpffilter.Translate(e.program, ebpffilter.AtEgress())
	inlineIn, err3 := loadtest.Inlined(e.program, ebpffilter.AtIngress())
	inlineOut, err4 := loadtest.Inlined(e.program, ebpffilter.AtEgress())
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Errorf("%s: %v", e.text, err)
		return
	}
	forms := []form{{in: in, out: out}, {in: inlineIn.Instructions, out: inlineOut.Instructions, inline: true}}
	want, file, err := c.ask(t, e)
	if err != nil {
		t.Errorf("%s: %v", e.text, err)
		return
	}
	c.account(e, want)
	for i := c.random.IntN(step); i < len(c.packets); i += step {
		if err := c.comparePacket(e, i, forms, want[i]); err != nil {
			t.Errorf("%s: %s: %v", e.text, c.packets[i].name, err)
			return // one difference is enough
		}
		if file == "" || file[i] == '-' {
			continue
		}
		if c.files++; file[i] != want[i] {
			t.Errorf("%s: %s: for a file %c, for a live interface %c", e.text, c.packets[i].name, file[i], want[i])
			return
		}
	}
}

// ask asks libpcap for its verdict on each packet, where possible also with a program for files.
func (c *comparison) ask(t *testing.T, e expression) (want, file string, err error) {
	t.Helper()
	live := false
	for _, in := range e.program {
		if in.Code&^0x18 != unix.BPF_LD|unix.BPF_ABS || in.K < metadata {
			continue
		}
		switch in.K - metadata {
		case ofType, ofInterface:
			live = true
		case ofTag, ofTagPresent:
		default:
			// After pppoes libpcap also adds the length of the headers to such an offset. The kernel has metadata
			// there, its own interpreter nothing.
			c.odd++
			return c.reference(e), "", nil
		}
	}
	want = c.oracle.run(t, e.program)
	switch {
	case live:
		c.live++
	case e.primitive == "" && strings.Contains(e.text, "vlan"):
		// After vlan libpcap's programs for files differ: in files a tag always takes four bytes of the packet, while
		// the tag of a live packet may be metadata.
	default:
		file, err = c.oracle.compile(t, c.link, strings.ReplaceAll(e.text, allOnes, ""))
	}
	return want, file, err
}

// reference returns the simulator's verdict on each packet.
func (c *comparison) reference(e expression) string {
	var b strings.Builder
	for i := range c.packets {
		result, err := simulator.Classic(e.program, &c.packets[i].sim)
		if err != nil {
			result = 1 // never a verdict of a filter
		}
		b.WriteByte(verdict(result))
	}
	return b.String()
}

// form is a translation of a filter: for ingress or for egress.
type form struct {
	in, out asm.Instructions
	inline  bool // with loadtest.Inlined's results
}

func (f *form) run(packet *simulator.Packet, outgoing bool, want byte) error {
	body := f.in
	if outgoing {
		body = f.out
	}
	result, err := simulator.Run(body, packet)
	got := verdict(result)
	if f.inline && result == 1 {
		got = '1'
	}
	if err != nil || got != want {
		return errors.Join(err, fmt.Errorf("with %d linear bytes the translation returns %c, libpcap %c\n%v", packet.Linear, got, want, body))
	}
	return nil
}

// comparePacket runs the classic program and its translations, those for egress if the packet leaves.
func (c *comparison) comparePacket(e expression, i int, forms []form, want byte) error {
	packet := c.packets[i].sim
	reference, err := simulator.Classic(e.program, &packet)
	if err != nil || verdict(reference) != want {
		return errors.Join(err, fmt.Errorf("the simulator returns %c, libpcap %c", verdict(reference), want))
	}
	outgoing := packet.Type == unix.PACKET_OUTGOING
	if outgoing { // which it does not have yet at egress
		packet.Type = unix.PACKET_HOST
	}
	for _, linear := range []int{len(packet.Data), c.random.IntN(len(packet.Data) + 1)} {
		packet.Linear = linear
		for _, f := range forms {
			if err := f.run(&packet, outgoing, want); err != nil {
				return err
			}
			c.programs++
		}
	}
	return nil
}

func (c *comparison) account(e expression, verdicts string) {
	if e.primitive == "" {
		return
	}
	refused, accepted := strings.Count(verdicts, "0"), strings.Count(verdicts, "1")
	if c.verdicts == nil {
		c.verdicts = make(map[string][2]int)
	}
	sum := c.verdicts[e.primitive]
	c.verdicts[e.primitive] = [2]int{sum[0] + refused, sum[1] + accepted}
	if refused == 0 || accepted == 0 {
		c.useless = append(c.useless, fmt.Sprintf("%s (%d refused, %d accepted)", e.text, refused, accepted))
	}
}

// checkPrimitives fails unless each form of each primitive matches some packets and refuses others.
func (c *comparison) checkPrimitives(t *testing.T) {
	t.Helper()
	for _, primitive := range slices.Sorted(maps.Keys(primitives)) {
		sum, known := c.verdicts[primitive]
		if known {
			t.Logf("%s: %d refused, %d accepted", primitive, sum[0], sum[1])
		}
		if (!known || sum[0] == 0 || sum[1] == 0) && c.link == pcapfilter.LinkEthernet {
			t.Errorf("%s: %d refused, %d accepted: the packets do not test it", primitive, sum[0], sum[1])
		}
	}
	for _, form := range c.useless {
		t.Errorf("the packets do not test %s", form)
	}
}

func verdict(result uint32) byte {
	switch result {
	case 0:
		return '0'
	case pcapfilter.MaxSnapLen:
		return '1'
	default:
		return '?'
	}
}
