package admission

import (
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// TestDecode says what to write in place of a value of another type.
func TestDecode(t *testing.T) {
	for object, want := range map[string]string{
		`{"spec":{"match":{"method":"GET"}}}`:        "has fields of its own",
		`{"spec":{"targetContainerPort":"http"}}`:    "write a number, without quotes",
		`{"spec":{"match":{"headers":{"a":"b"}}}}`:   "it is a list",
		`{"spec":{"expiresAfter":3}}`:                "put the value in quotes",
		`{"spec":{"targetNamespace":"shop","mode":}`: "put names and durations in quotes",
	} {
		if err := Decode([]byte(object), &v1alpha1.InterceptRequest{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", object, err, want)
		}
	}
}
