package fluentpvc

import (
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

// decode reads a FluentPVC. unknown says which fields it has that its types have not: the API server does not look into the
// templates, and a misspelt field would be ignored.
func decode(raw []byte) (f *sondev1.FluentPVC, unknown []string, err error) {
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
