package webhookpath_test

import (
	"regexp"
	"testing"

	"github.com/sonde-operator/sonde/internal/operator/webhookpath"
)

func TestSecret(t *testing.T) {
	one, same, other := webhookpath.Secret([]byte("key")), webhookpath.Secret([]byte("key")), webhookpath.Secret([]byte("another"))
	if one != same || one == other || !regexp.MustCompile(`^/[0-9a-f]{32}$`).MatchString(one) {
		t.Errorf("paths %q, %q, %q: want one for each key, and one that cannot be guessed", one, same, other)
	}
}
