package tunnel

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// PublicKey names a key: the SHA-256 of its SubjectPublicKeyInfo, in base64.
type PublicKey string

// keyOf returns the name of a certificate's key.
func keyOf(c *x509.Certificate) PublicKey {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return PublicKey(base64.StdEncoding.EncodeToString(sum[:]))
}

// Identity is a key with a certificate that only carries it. Peers compare keys alone, never names or dates.
type Identity struct {
	certificate tls.Certificate
	Key         PublicKey
}

// NewIdentity makes a P-256 key.
func NewIdentity() (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	// The dates are not checked. They span all clocks.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	return &Identity{certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, Key: keyOf(leaf)}, nil
}

// MarshalPEM returns certificate and key as one PEM text, for a Secret.
func (i *Identity) MarshalPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(i.certificate.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.certificate.Certificate[0]})
	return append(certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...), nil
}

// ParseIdentity reads what MarshalPEM wrote.
func ParseIdentity(text []byte) (*Identity, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, fmt.Errorf("parse identity: %w", err)
	}
	return &Identity{certificate: pair, Key: keyOf(pair.Leaf)}, nil
}

// errPeer is the error of a handshake with a key that is not expected.
var errPeer = errors.New("the other side's key is not the one that was agreed on")

// ServerTLS accepts clients whose key is known.
func (i *Identity) ServerTLS(known func(PublicKey) bool) *tls.Config {
	c := i.config(known)
	c.ClientAuth = tls.RequireAnyClientCert
	return c
}

// ClientTLS connects to the server that has this key.
func (i *Identity) ClientTLS(server PublicKey) *tls.Config {
	c := i.config(func(k PublicKey) bool { return k == server })
	c.InsecureSkipVerify = true // VerifyConnection compares the key
	return c
}

func (i *Identity) config(known func(PublicKey) bool) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate}, NextProtos: []string{"h2"}, SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 || !known(keyOf(s.PeerCertificates[0])) {
				return errPeer
			}
			return nil
		},
	}
}

// PeerKey returns the key of a finished handshake's other side.
func PeerKey(s tls.ConnectionState) PublicKey { return keyOf(s.PeerCertificates[0]) }
