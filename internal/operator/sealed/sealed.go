// Package sealed encrypts keys of the manager in Secrets whose other entries Pods mount. A node's kubelet may read all of a Secret that a Pod on
// it mounts, and has no right to the manager's keys.
package sealed

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
)

// domain separates the key from others that are derived from the manager's.
const domain = "sonde-sealed-v1"

// keyBytes is the length of the manager's key (stamp.KeyBytes), and of the key of AES-256.
const keyBytes = 32

// ErrOtherKey says that an entry was sealed with another key of the manager, or for another Secret.
var ErrOtherKey = errors.New("it was sealed with another key: the Secret sonde-stamp-key was replaced since")

// Seal encrypts an entry of a Secret with the manager's key. Only Open with the same key, Secret and entry reads it.
func Seal(key []byte, secret, entry string, plain []byte) ([]byte, error) {
	aead, err := newAEAD(key)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, plain, place(secret, entry)), nil
}

// Open decrypts an entry. One that a manager of version 0.2 or older wrote is in PEM, and is returned as it is.
func Open(key []byte, secret, entry string, data []byte) ([]byte, error) {
	switch {
	case len(data) == 0:
		return nil, fmt.Errorf("the Secret %s has no %s", secret, entry)
	case bytes.HasPrefix(data, []byte("-----BEGIN ")):
		return data, nil
	}
	aead, err := newAEAD(key)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nil, data, place(secret, entry))
	if err != nil {
		return nil, fmt.Errorf("read %s of Secret %s: %w", entry, secret, ErrOtherKey)
	}
	return plain, nil
}

// place binds a text to its entry.
func place(secret, entry string) []byte { return []byte(secret + "\x00" + entry) }

func newAEAD(key []byte) (cipher.AEAD, error) {
	if len(key) != keyBytes {
		return nil, fmt.Errorf("seal a key: the manager's key has %d bytes, want %d", len(key), keyBytes)
	}
	derived, err := hkdf.Key(sha256.New, key, nil, domain, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, fmt.Errorf("make a cipher: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("make a cipher: %w", err)
	}
	return aead, nil
}
