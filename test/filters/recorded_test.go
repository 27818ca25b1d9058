package filters

import (
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/test/filters/loadtest"
	"github.com/sonde-operator/sonde/test/privileged"
)

var update = flag.Bool("update", false, "rewrite testdata/programs.txt")

// recorded has on each line a link type, an expression and its program. Compiling takes too long in an emulated virtual
// machine.
//
//go:embed testdata/programs.txt
var recorded string

// alsoRecorded are the large filters that are recorded.
var alsoRecorded = []string{"ports in vlan", "ports in geneve", "bytes behind bytes", "byte of byte", "many layers", "vlans in vlans"}

// TestRecorded compares the recorded programs with those that libpcap compiles now.
func TestRecorded(t *testing.T) {
	var b strings.Builder
	for _, link := range []pcapfilter.LinkType{pcapfilter.LinkEthernet, pcapfilter.LinkRaw} {
		all := compiled(t, link, 0)
		n := 50
		if link == pcapfilter.LinkRaw {
			n = 10
		}
		for i := range n {
			e := all[i*len(all)/n]
			fmt.Fprintf(&b, "%d\t%s\t%v\n", link, e.text, e.program)
		}
	}
	compiler := sharedCompiler(t)
	for _, name := range alsoRecorded {
		program, err := compiler.Compile(t.Context(), large[name], pcapfilter.LinkEthernet, 0)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%d\t%s\t%v\n", pcapfilter.LinkEthernet, large[name], program)
	}
	if *update {
		if err := os.WriteFile("testdata/programs.txt", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(recorded, b.String()); diff != "" {
		t.Errorf("testdata/programs.txt differs from what libpcap compiles now (-args -update rewrites it):\n%s", diff)
	}
}

// TestRecordedInKernel loads and runs the recorded programs.
func TestRecordedInKernel(t *testing.T) {
	privileged.Need(t)
	packets := map[pcapfilter.LinkType][]packet{
		pcapfilter.LinkEthernet: packetsOf(t, pcapfilter.LinkEthernet), pcapfilter.LinkRaw: packetsOf(t, pcapfilter.LinkRaw),
	}
	runs := make(map[pcapfilter.LinkType]int)
	for line := range strings.Lines(recorded) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		link, err := strconv.Atoi(fields[0])
		if err != nil {
			t.Fatal(err)
		}
		program, err := bpfprog.Parse(fields[2])
		if err != nil {
			t.Fatal(err)
		}
		of := pcapfilter.LinkType(link)
		runs[of] += inKernel(t, expression{text: fields[1], program: program}, packets[of])
	}
	t.Logf("%d programs loaded, %d runs", loadtest.Loads(), runs[pcapfilter.LinkEthernet]+runs[pcapfilter.LinkRaw])
	if links := slices.Collect(maps.Keys(runs)); len(links) != 2 {
		t.Errorf("got only programs of link types %v, want Ethernet and raw IP", links)
	}
}
