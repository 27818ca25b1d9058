package fluentpvc

import (
	"bytes"
	"encoding/json"
	"regexp"
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

// exponent matches the numbers that a quantity must not be parsed from: 1234567890123456789e1000000000 takes hundreds of megabytes.
var exponent = regexp.MustCompile(`^\s*[+-]?[0-9.]+[eE][+-]?[0-9]{3,}\s*$`)

// hugeNumber returns a text or a number with an exponent of three digits or more; empty if there is none.
func hugeNumber(raw []byte) string {
	tokens := json.NewDecoder(bytes.NewReader(raw))
	tokens.UseNumber()
	for {
		token, err := tokens.Token()
		if err != nil { // the end, or a syntax error, of which the real decoder says more
			return ""
		}
		value := ""
		switch token := token.(type) {
		case string:
			value = token
		case json.Number:
			value = token.String()
		}
		if exponent.MatchString(value) {
			return value
		}
	}
}

// decode reads a FluentPVC. unknown says which fields it has that its types have not: the API server does not look into the
// templates, and a misspelt field would be ignored.
func decode(raw []byte) (f *sondev1.FluentPVC, unknown []string, err error) {
	if number := hugeNumber(raw); number != "" {
		return nil, nil, admission.Invalid("read the FluentPVC: %q is no quantity that a cluster has: write a number without an exponent, like 1Gi",
			text.Ellipsis(number, maxValueBytes))
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
