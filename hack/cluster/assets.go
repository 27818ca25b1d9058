package main

import (
	"bytes"
	"embed"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"text/template"
)

//go:embed assets
var assets embed.FS

// templates are the configuration files. Each is rendered with the values that its comments name. A missing value is an
// error.
var templates = template.Must(template.New("").Option("missingkey=error").Funcs(template.FuncMap{
	"base64": base64.StdEncoding.EncodeToString,
}).ParseFS(assets, "assets/*"))

// render writes the asset called name, filled with values, to w.
func render(to io.Writer, name string, values any) error {
	if err := templates.ExecuteTemplate(to, name, values); err != nil {
		return fmt.Errorf("render %s: %w", name, err)
	}
	return nil
}

// renderFile writes the asset called name, filled with values, to path.
func renderFile(path, name string, values any) error {
	var b bytes.Buffer
	if err := render(&b, name, values); err != nil {
		return err
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}
