package fewreads

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// picked are the labels or annotations of an object with the keys of K. A struct with these as its fields would also take
// monitoring.openshift.tpg/Kind for monitoring.openshift.tpg/kind, because encoding/json ignores the case.
type picked[K keys] map[string]string

// keys says which keys are picked.
type keys interface{ keys() []string }

type (
	podLabels        struct{}
	podAnnotations   struct{}
	ownedLabels      struct{}
	ownedAnnotations struct{}
)

func (podLabels) keys() []string {
	return []string{sondev1.LabelTraceRequired, sondev1.KeyFluentPVC, sondev1.KeyFluentPVCSource}
}

func (podAnnotations) keys() []string {
	return []string{sondev1.AnnotationGatedByUID, sondev1.AnnotationClaim, sondev1.KeyFluentPVC, sondev1.KeyFluentPVCSource}
}

func (ownedLabels) keys() []string {
	return []string{sondev1.LabelKind, sondev1.LabelUID, sondev1.LabelTargetPodUID}
}

func (ownedAnnotations) keys() []string {
	return []string{
		sondev1.AnnotationOwner, sondev1.AnnotationClaim, sondev1.AnnotationTargetPod, sondev1.AnnotationDiscard,
		sondev1.AnnotationRun, sondev1.AnnotationGeneration,
	}
}

// UnmarshalJSON skips other entries without decoding them: 60,000 labels take 12 MiB as a map.
func (p *picked[K]) UnmarshalJSON(raw []byte) error {
	var k K
	wanted := k.keys()
	*p = nil
	rest := bytes.TrimSpace(raw)
	if string(rest) == "null" {
		return nil
	}
	for rest = after(rest, '{'); len(rest) > 0 && rest[0] != '}'; rest = after(rest, ',') {
		var key, value []byte
		if key, rest = text(rest); key != nil {
			value, rest = text(after(rest, ':'))
		}
		if value == nil {
			return errNotText
		}
		// The API server escapes no character of our keys.
		if name := string(key[1 : len(key)-1]); slices.Contains(wanted, name) {
			var decoded string
			if err := json.Unmarshal(value, &decoded); err != nil {
				return fmt.Errorf("decode %s: %w", name, err)
			}
			if *p == nil {
				*p = picked[K]{}
			}
			(*p)[name] = decoded
		}
	}
	return nil
}

var errNotText = errors.New("a label or an annotation is no text")

// after returns what follows a character and the space around it. Without the character it is the rest without space.
func after(rest []byte, c byte) []byte {
	rest = bytes.TrimSpace(rest)
	if len(rest) > 0 && rest[0] == c {
		rest = bytes.TrimSpace(rest[1:])
	}
	return rest
}

// text splits valid JSON after the text with which it begins; nil if it begins with something else.
func text(rest []byte) (quoted, after []byte) {
	if len(rest) == 0 || rest[0] != '"' {
		return nil, rest
	}
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			return rest[:i+1], rest[i+1:]
		}
	}
	return nil, rest
}
