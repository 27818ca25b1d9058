package v1alpha1_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// TestColumnsOfCounts checks that kubectl shows a count of zero as 0. It leaves the column of an absent field blank.
func TestColumnsOfCounts(t *testing.T) {
	status := sondev1.CaptureStatus{Totals: sondev1.Totals{Pods: 1}}
	b, err := json.Marshal(sondev1.Trace{Status: status})
	if err != nil {
		t.Fatal(err)
	}
	var object any
	if err := json.Unmarshal(b, &object); err != nil {
		t.Fatal(err)
	}
	counts := 0
	for _, plural := range []string{"packetcaptures", "traces"} {
		b, err := os.ReadFile(filepath.Join("../../config/crd/bases", sondev1.GroupVersion.Group+"_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(b, &crd); err != nil {
			t.Fatal(err)
		}
		for _, c := range crd.Spec.Versions[0].AdditionalPrinterColumns {
			if !strings.HasPrefix(c.JSONPath, ".status.totals.") {
				continue
			}
			counts++
			path := jsonpath.New(c.Name).AllowMissingKeys(true)
			var text bytes.Buffer
			if err := path.Parse("{" + c.JSONPath + "}"); err != nil {
				t.Fatal(err)
			}
			if err := path.Execute(&text, object); err != nil || text.Len() == 0 {
				t.Errorf("column %s of %s is blank (%v)", c.Name, plural, err)
			}
		}
	}
	if counts != 6 {
		t.Errorf("%d columns have counts, want 6", counts)
	}
}
