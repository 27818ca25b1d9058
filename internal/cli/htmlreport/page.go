package htmlreport

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"

	"github.com/sonde-operator/sonde/internal/version"
)

// Page is what a report shows. Its texts need not be printable.
type Page struct {
	// Kind is the line above the Title, like "Packet capture".
	Kind, Title string
	Facts       []Fact
	Verdict     Verdict
	Figures     []Figure
	// Findings are sentences about what is worth a look.
	Findings []string
	Sections []Section
}

// Fact is a line of the head: what was captured.
type Fact struct{ Name, Value string }

// Level says how good a value is.
type Level string

// Levels of values.
const (
	LevelPlain   Level = ""
	LevelGood    Level = "good"
	LevelWarning Level = "warning"
	LevelBad     Level = "bad"
)

// Verdict says whether the file has everything, and why not.
type Verdict struct {
	Level   Level
	Text    string
	Reasons []string
}

// Figure is one of the key figures. Note is a few words below it.
type Figure struct {
	Label, Value, Note string
	Level              Level
}

// Section has a title, a sentence that says what it shows, charts and tables.
type Section struct {
	ID, Title, Intro string
	Charts           []Chart
	Tables           []Table
}

// Table has a caption and columns. Rows beyond those given are counted by Omitted.
type Table struct {
	Caption string
	Columns []Column
	Rows    [][]Cell
	// Omitted says which rows are not in the table; empty if all are.
	Omitted string
}

// Wide reports whether the table takes the whole width of the page.
func (t Table) Wide() bool { return len(t.Columns) > 6 }

// Column of a Table. Numbers are aligned right.
type Column struct {
	Title   string
	Numeric bool
	// Help explains the title.
	Help string
}

// Cell of a Table. The browser sorts by Sort if the column is numeric, and else by Text.
type Cell struct {
	Text  string
	Sort  float64
	Level Level
	// Bar is the share of a bar behind the text, from 0 to 1.
	Bar float64
	// Depth is the indentation of a tree, in levels.
	Depth int
}

// longText is from how many bytes on a text is broken into lines.
const longText = 48

// Long reports whether the text needs several lines.
func (c Cell) Long() bool { return len(c.Text) > longText }

// Chart is drawn by the script of the page. Its X values are seconds, or the numbers of the bars.
type Chart struct {
	ID    string `json:"id"`
	Title string `json:"-"`
	// Label describes the chart for those who do not see it.
	Label string `json:"-"`
	Note  string `json:"-"`
	// Kind is how series are drawn: "time" or "bars".
	Kind ChartKind `json:"kind"`
	Unit string    `json:"unit"`
	X    []float64 `json:"x"`
	// Labels of bars.
	Labels []string `json:"labels,omitempty"`
	Series []Series `json:"series"`
	Marks  []Mark   `json:"marks,omitempty"`
}

// ChartKind is the kind of a Chart.
type ChartKind string

// Kinds of charts.
const (
	TimeChart ChartKind = "time"
	BarChart  ChartKind = "bars"
)

// Series of a Chart. Colour is the name of a colour in the style sheet.
type Series struct {
	Label  string    `json:"label"`
	Colour string    `json:"colour"`
	Bars   bool      `json:"bars,omitempty"`
	Values []float64 `json:"values"`
}

// Mark is a span of a time chart.
type Mark struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

//go:embed page.html
var pageText string

//go:embed assets/style.css
var styleText string

//go:embed assets/report.js
var scriptText string

//go:embed assets/uPlot.iife.min.js
var chartLibrary string

//go:embed assets/uPlot.LICENSE
var chartLicense string

// chartScript is the library with its licence, which every copy must have.
var chartScript = "/*!\n" + chartLicense + "\n*/\n" + chartLibrary

//go:embed assets/uPlot.min.css
var chartStyle string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"visible": visible, "depth": func(n int) int { return min(n, maxDepth) },
}).Parse(pageText))

// maxDepth is the deepest indentation in the style sheet.
const maxDepth = 12

// policy is the Content-Security-Policy of every page.
var policy = fmt.Sprintf("default-src 'none'; script-src '%s' '%s'; style-src '%s' '%s'; base-uri 'none'; form-action 'none'",
	hash(chartScript), hash(scriptText), hash(chartStyle), hash(styleText))

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Write writes the page as HTML.
func Write(w io.Writer, p *Page) error {
	data := struct {
		*Page
		Policy, Version string
		Styles          []template.CSS
		Scripts         []template.JS
		Charts          []Chart
	}{
		Page: p, Policy: policy, Version: version.Version,
		Styles:  []template.CSS{template.CSS(chartStyle), template.CSS(styleText)}, //nolint:gosec // our own files
		Scripts: []template.JS{template.JS(chartScript), template.JS(scriptText)},  //nolint:gosec // our own files
		Charts:  []Chart{},
	}
	for _, s := range p.Sections {
		data.Charts = append(data.Charts, s.Charts...)
	}
	if err := pageTemplate.Execute(w, data); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
