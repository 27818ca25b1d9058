package sealed

import (
	"bytes"
	"errors"
	"testing"
)

func TestSeal(t *testing.T) {
	key, plain := bytes.Repeat([]byte{1}, keyBytes), []byte("-----BEGIN PRIVATE KEY-----\n")
	box, err := Seal(key, "shop-web", "client.key", plain)
	if err != nil || bytes.Contains(box, []byte("PRIVATE")) {
		t.Fatalf("%q, %v", box, err)
	}
	if got, err := Open(key, "shop-web", "client.key", box); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("opened %q, %v", got, err)
	}
	broken := bytes.Clone(box)
	broken[len(broken)-1] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"another key":    func() ([]byte, error) { return Open(bytes.Repeat([]byte{2}, keyBytes), "shop-web", "client.key", box) },
		"another Secret": func() ([]byte, error) { return Open(key, "shop-db", "client.key", box) },
		"another entry":  func() ([]byte, error) { return Open(key, "shop-web", "manager.pem", box) },
		"changed":        func() ([]byte, error) { return Open(key, "shop-web", "client.key", broken) },
		"short":          func() ([]byte, error) { return Open(key, "shop-web", "client.key", box[:5]) },
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := open(); !errors.Is(err, ErrOtherKey) {
				t.Errorf("opened %q, %v", got, err)
			}
		})
	}
	if got, err := Open(key, "shop-web", "client.key", plain); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("an older manager's entry: %q, %v", got, err)
	}
	if _, err := Open(key, "shop-web", "client.key", nil); err == nil || err.Error() != "the Secret shop-web has no client.key" {
		t.Errorf("no entry: %v", err)
	}
	if _, err := Seal(nil, "shop-web", "client.key", plain); err == nil {
		t.Error("sealed without a key")
	}
}
