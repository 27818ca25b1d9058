package pass

import (
	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// maxRetry bounds the part of the annotation that a status keeps, in bytes.
const maxRetry = 200

// RetryRequested returns what the annotation with which users ask for another attempt says, or "" if there is none. An empty annotation
// is a request, too. The value ends between two characters: JSON has no half ones, so the status would never equal it.
func RetryRequested(annotations map[string]string) string {
	value, ok := annotations[sondev1.AnnotationRetry]
	if !ok {
		return ""
	}
	return "=" + text.Truncate(value, maxRetry)
}
