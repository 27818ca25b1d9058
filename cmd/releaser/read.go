package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/yaml"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// labelInput of a revision is the hash of its chart and values.
const labelInput = "monitoring.openshift.tpg/input"

// input of a release.
type input struct {
	files  []*archive.BufferedFile
	values map[string]any
	hash   string
}

// chart returns a new copy of the chart: Helm changes the one that it renders.
func (in *input) chart() (*chartv2.Chart, error) {
	c, err := loader.LoadFiles(in.files)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return nil, &problem{reason: release.ReasonChartInvalid, text: "read the chart: " + err.Error()}
	}
	return c, nil
}

func (in *input) labels() map[string]string { return map[string]string{labelInput: in.hash} }

// read reads chart and values, and checks them without the API server.
func (a *attempt) read(ctx context.Context) (*input, error) {
	files, err := a.source(ctx, a.request.Chart)
	if err != nil {
		return nil, err
	}
	in := &input{files: files}
	if in.values, err = values(a.request, a.values); err != nil {
		return nil, err
	}
	c, err := in.chart()
	if err != nil {
		return nil, err
	}
	if crds := c.CRDObjects(); len(crds) > 0 {
		return nil, &problem{reason: release.ReasonScopeRefused, text: fmt.Sprintf(
			"the chart has a CustomResourceDefinition (%s), which is an object of the cluster: ask an admin to install it, and use a chart without it", crds[0].Filename)}
	}
	if err := checkSchemas(c); err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependencies(c, in.values); err != nil {
		return nil, &problem{reason: release.ReasonChartInvalid, text: "read the chart's dependencies: " + err.Error()}
	}
	all, err := util.CoalesceValues(c, in.values)
	if err != nil {
		return nil, &problem{reason: release.ReasonBadValues, text: "merge the values with the chart's: " + err.Error()}
	}
	if err := util.ValidateAgainstSchema(c, all); err != nil {
		return nil, &problem{reason: release.ReasonSchemaInvalid, text: "the chart's schema refuses the values: " + strings.TrimSpace(err.Error())}
	}
	in.hash, err = hashOf(in)
	return in, err
}

// values returns the values of a request: those of collector.configuration, then valuesFrom, which are below a directory, then values,
// then global. Later ones win.
func values(q *release.Request, dir string) (map[string]any, error) {
	document, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(q.Configuration), ""))
	if err != nil {
		return nil, &problem{reason: release.ReasonBadValues, text: "collector.configuration is not base64: " + err.Error() + ": write the output of base64 -w0 values.yaml"}
	}
	merged, err := parseValues("collector.configuration", document)
	if err != nil {
		return nil, err
	}
	for i, from := range q.ValuesFrom {
		document, err := os.ReadFile(valuesPath(dir, i))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &problem{reason: release.ReasonValuesNotFound, retry: true, text: fmt.Sprintf(
				"valuesFrom: %s does not exist in namespace %s: create it, or correct valuesFrom", from, q.Namespace)}
		}
		if err != nil {
			return nil, fmt.Errorf("read values: %w", err)
		}
		more, err := parseValues(from.String(), document)
		if err != nil && from.Secret() {
			return nil, &problem{reason: release.ReasonBadValues, text: from.String() + " is not a YAML document with values"}
		}
		if err != nil {
			return nil, err
		}
		if from.Secret() {
			secrets.add(more) // the kubelet may have written the file after hideSecrets has read it
		}
		merged = loader.MergeMaps(merged, more)
	}
	own, err := parseValues("values", q.Values)
	if err != nil {
		return nil, err
	}
	return loader.MergeMaps(loader.MergeMaps(merged, own), map[string]any{"global": q.Global}), nil
}

// hideSecrets hides the values of all Secrets that can be read. values reports what is wrong with the others.
func hideSecrets(q *release.Request, dir string) {
	for i, from := range q.ValuesFrom {
		if !from.Secret() {
			continue
		}
		document, err := os.ReadFile(valuesPath(dir, i))
		if err != nil {
			continue
		}
		if all, err := parseValues(from.String(), document); err == nil {
			secrets.add(all)
		}
	}
}

// valuesPath returns the path of an entry of valuesFrom.
func valuesPath(dir string, entry int) string {
	return filepath.Join(dir, strconv.Itoa(entry), release.ValuesFile)
}

// parseValues reads a YAML document with values.
func parseValues(place string, document []byte) (map[string]any, error) {
	var values map[string]any
	if err := yaml.Unmarshal(document, &values, useNumber); err != nil {
		return nil, &problem{reason: release.ReasonBadValues, text: place + " is not a YAML document with values: " + err.Error()}
	}
	return values, nil
}

// useNumber keeps large integers: float64 would round them.
func useNumber(d *json.Decoder) *json.Decoder {
	d.UseNumber()
	return d
}

// checkSchemas refuses schemas that refer to other documents. Helm would fetch these by HTTP, or read them from the file system.
func checkSchemas(c *chartv2.Chart) error {
	if len(c.Schema) > 0 {
		if err := compile(c.Schema); err != nil {
			return &problem{reason: release.ReasonSchemaInvalid, text: fmt.Sprintf("values.schema.json of chart %s: %v", c.Name(), err)}
		}
	}
	for _, dependency := range c.Dependencies() {
		if err := checkSchemas(dependency); err != nil {
			return err
		}
	}
	return nil
}

const schemaURL = "file:///values.schema.json"

func compile(text []byte) error {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaURL, document); err != nil {
		return err
	}
	_, err = compiler.Compile(schemaURL)
	return err
}

// noLoader loads nothing.
type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, errors.New("it refers to " + url + ": write the definition into the schema")
}

// hashOf returns a hash that changes with chart and values. It fits a label.
func hashOf(in *input) (string, error) {
	h := sha256.New()
	add := func(b []byte) {
		_ = binary.Write(h, binary.BigEndian, uint64(len(b)))
		h.Write(b)
	}
	sorted := slices.SortedFunc(slices.Values(in.files), func(a, b *archive.BufferedFile) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range sorted {
		add([]byte(f.Name))
		add(f.Data)
	}
	b, err := json.Marshal(in.values)
	if err != nil {
		return "", fmt.Errorf("hash the values: %w", err)
	}
	add(b)
	return hex.EncodeToString(h.Sum(nil))[:40], nil
}
