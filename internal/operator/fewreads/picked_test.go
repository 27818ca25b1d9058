package fewreads

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// FuzzPicked compares picked with a map of all entries.
func FuzzPicked(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, ` { } `, `{"a":"b"}`, `{"a":1}`, `[]`, `"a"`, `{"monitoring.openshift.tpg/kind":"x","a":"\\\"}","monitoring.openshift.tpg/uid":"\u0041"}`,
		"{\n  \"monitoring.openshift.tpg/kind\" : \"x\" ,\n \"monitoring.openshift.tpg/Kind\":\"y\"\n}", `{"monitoring.openshift.tpg/kind":null}`, `{"a":{"monitoring.openshift.tpg/kind":"x"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got picked[ownedLabels]
		var all map[string]*string
		err, want := json.Unmarshal(raw, &got), map[string]string{}
		if json.Unmarshal(raw, &all) != nil || slices.Contains(slices.Collect(maps.Values(all)), nil) {
			return // never an answer of the API server; it must not panic
		}
		for _, k := range []string{sondev1.LabelKind, sondev1.LabelUID, sondev1.LabelTargetPodUID} {
			if v, ok := all[k]; ok {
				want[k] = *v
			}
		}
		if escaped := len(got) < len(want); err != nil || !escaped && !maps.Equal(want, got) {
			t.Errorf("%s: picked %v, %v, want %v", raw, got, err, want)
		}
	})
}
