package fluentpvc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/text"
	"github.com/sonde-operator/sonde/webhooks/admission"
)

// MaxSpecBytes bounds a spec as JSON.
const MaxSpecBytes = 32 << 10

// maxValueBytes bounds a user's text in a message.
const maxValueBytes = 128

// strict reads FluentPVCs and names the fields that no type has.
var strict = func() *jsonserializer.Serializer {
	scheme := runtime.NewScheme()
	utilruntime.Must(sondev1.AddToScheme(scheme))
	return jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme, jsonserializer.SerializerOptions{Strict: true})
}()

// exponent matches what no quantity may be parsed from: 1234567890123456789e1000000000 takes hundreds of megabytes.
var exponent = regexp.MustCompile(`^\s*[+-]?[0-9.]+[eE][+-]?[0-9]{3,}\s*$`)

// Fields with quantities: the entries of the first, and the second themselves.
var (
	quantityMaps = []string{"requests", "limits", "capacity", "overhead", "allocatedResources"}
	quantities   = []string{"sizeLimit", "divisor"}
)

// hugeQuantity returns the first quantity with an exponent of three digits or more; empty if there is none. It reads tokens, because
// of two fields with one name the decoder parses both.
func hugeQuantity(raw []byte) string {
	tokens := json.NewDecoder(bytes.NewReader(raw))
	tokens.UseNumber()
	type level struct {
		object, value bool   // an object, and its next token is a value
		name, key     string // of the field that this level is, and of its next value
	}
	levels := []level{{}}
	for {
		token, err := tokens.Token()
		if err != nil { // the end, or a syntax error, of which the real decoder says more
			return ""
		}
		at := &levels[len(levels)-1]
		if key, ok := token.(string); ok && at.object && !at.value {
			at.key, at.value = key, true
			continue
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			levels = levels[:len(levels)-1]
			continue
		}
		at.value = false
		if d, ok := token.(json.Delim); ok {
			levels = append(levels, level{object: d == '{', name: at.key})
			continue
		}
		if text := fmt.Sprint(token); exponent.MatchString(text) && (slices.Contains(quantityMaps, at.name) || slices.Contains(quantities, at.key)) {
			return text
		}
	}
}

// decode reads a FluentPVC. unknown says which fields it has that its types have not: the API server does not look into the
// templates, and a misspelt field would be ignored.
func decode(raw []byte) (f *sondev1.FluentPVC, unknown []string, err error) {
	if quantity := hugeQuantity(raw); quantity != "" {
		return nil, nil, admission.Invalid("read the FluentPVC: the quantity %q is too large: write one without an exponent, like 1Gi",
			text.Ellipsis(quantity, maxValueBytes))
	}
	f = &sondev1.FluentPVC{}
	_, _, err = strict.Decode(raw, nil, f)
	if lax, ok := runtime.AsStrictDecodingError(err); ok {
		for _, e := range lax.Errors() {
			unknown = append(unknown, text.Ellipsis(e.Error(), maxValueBytes)+": correct its name, or remove it")
		}
		return f, unknown, nil
	}
	if err != nil {
		return nil, nil, admission.Invalid("read the FluentPVC: %s: put texts in quotes, and remove the quotes around numbers",
			strings.TrimPrefix(err.Error(), "json: "))
	}
	return f, nil, nil
}
