package fluentpvc

import (
	"strings"
	"testing"
)

// TestHugeQuantity: a quantity with a huge exponent is refused before it is parsed, which would take hundreds of megabytes. The same
// text elsewhere, such as a commit in a variable, is none.
func TestHugeQuantity(t *testing.T) {
	const huge = "1234567890123456789e1000000000"
	for raw, want := range map[string]bool{
		`{"requests":{"storage":"1Gi"}}`:                                          false,
		`{"requests":{"storage":"1e3"}}`:                                          false,
		`{"requests":{"storage":"12345678901234567890"}}`:                         false,
		`{"requests":{"storage":"` + huge + `"}}`:                                 true,
		`{"requests":{"storage":1e1000000000}}`:                                   true,
		`{"requests":{"storage":"-1.5E+0999"}}`:                                   true,
		`{"requests":{"storage":" 1e999 "}}`:                                      true,
		`{"requests":{"storage":"` + huge + `","storage":"1Gi"}}`:                 true,
		`{"requests":{"storage":"` + huge + `"},"requests":{}}`:                   true,
		`{"a":[{"emptyDir":{"sizeLimit":"` + huge + `"}}]}`:                       true,
		`{"valueFrom":{"resourceFieldRef":{"resource":"x","divisor":"1e1000"}}}`:  true,
		`{"env":[{"name":"COMMIT","value":"123e4567"}]}`:                          false,
		`{"annotations":{"x":"1e1000","requests":"1e1000"}}`:                      false,
		`{"a":{"requests":{"cpu":"1"}},"b":"1e1000"}`:                             false,
		`{"command":["1e1000",{"x":1},"1e1000"],"limits":{"memory":"1e1000000"}}`: true,
		`{"requests":`: false,
	} {
		if got := hugeQuantity([]byte(raw)); (got != "") != want {
			t.Errorf("%s has the huge quantity %q, want one: %t", raw, got, want)
		}
	}
	_, _, err := decode([]byte(`{"spec":{"pvcSpecTemplate":{"resources":{"requests":{"storage":"` + huge + `"}}}}}`))
	if err == nil || !strings.Contains(err.Error(), "write one without an exponent") {
		t.Errorf("got %v, want a refusal that says what to write", err)
	}
}
