package fluentpvc

import (
	"strings"
	"testing"
)

// TestHugeNumber: a quantity with an exponent of many digits is refused before it is parsed, which would take hundreds of megabytes.
func TestHugeNumber(t *testing.T) {
	for value, huge := range map[string]bool{
		`"1Gi"`: false, `"1e3"`: false, `"12345678901234567890"`: false, `"file1e999.txt"`: false, `1.5`: false,
		`"1234567890123456789e1000000000"`: true, `1e1000000000`: true, `"-1.5E+0999"`: true, `" 1e999 "`: true,
	} {
		raw := `{"spec":{"pvcSpecTemplate":{"resources":{"requests":{"storage":` + value + `}}}}}`
		if got := hugeNumber([]byte(raw)) != ""; got != huge {
			t.Errorf("%s is huge: %t, want %t", value, got, huge)
		}
	}
	_, _, err := decode([]byte(`{"spec":{"pvcSpecTemplate":{"resources":{"requests":{"storage":"1234567890123456789e1000000000"}}}}}`))
	if err == nil || !strings.Contains(err.Error(), "write a number without an exponent") {
		t.Errorf("got %v, want a refusal that says what to write", err)
	}
}
