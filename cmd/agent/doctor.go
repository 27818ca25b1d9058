package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/sonde-operator/sonde/agents/doctor"
)

// Formats of a report.
const (
	outputText = "text"
	outputJSON = "json"
)

// runDoctor checks what the node's kernel allows, and prints a report. A failed check is not an error.
func runDoctor(_ context.Context, args []string, _ *slog.Logger) (int, error) {
	return examine(os.Stdout, args)
}

func examine(out io.Writer, args []string) (int, error) {
	flags := flag.NewFlagSet("agent doctor", flag.ContinueOnError)
	output := outputText
	flags.Func("output", "`format` of the report: text or json (default text)", func(s string) error {
		if s != outputText && s != outputJSON {
			return fmt.Errorf("write %s or %s", outputText, outputJSON)
		}
		output = s
		return nil
	})
	proc := flags.String("proc", "/proc", "`directory` in which the node's processes are")
	if err := parse(flags, args); err != nil {
		return exitUsage, err
	}
	report := doctor.Examine(*proc)
	if output == outputText {
		_, err := io.WriteString(out, report.Text())
		return 0, err
	}
	return 0, json.NewEncoder(out).Encode(report)
}
