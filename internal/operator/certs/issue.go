// Package certs creates and renews the serving certificate of the webhooks and of the results endpoint, and the authority
// that the API server trusts for it. It needs no other operator and no mount: all replicas serve from memory the
// certificate in one Secret. docs/adr/0013-own-code-or-library.md says why it is not a library.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// Lifetimes. Certificates are renewed when less than a third is left. So the authority outlives every serving certificate
// that it signed, and its successor is in the bundle long before it is used.
const (
	caLife   = 2 * 365 * 24 * time.Hour
	leafLife = 90 * 24 * time.Hour
	// skew is how far the API server's clock may be behind ours.
	skew = 10 * time.Minute
)

// caName is the subject of every authority of this package. The bundle keeps no others.
const caName = "sonde-ca"

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newCA creates an authority that may sign serving certificates and no other authorities.
func newCA(now time.Time) (pair, error) {
	return issue(&x509.Certificate{
		Subject:               pkix.Name{CommonName: caName},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(caLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, nil)
}

// newLeaf creates a serving certificate for names. It never outlives the authority.
func newLeaf(now time.Time, ca pair, names []string) (pair, error) {
	end := now.Add(leafLife)
	if ca.cert.NotAfter.Before(end) {
		end = ca.cert.NotAfter
	}
	return issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "sonde"},
		DNSNames:    names,
		NotBefore:   now.Add(-skew),
		NotAfter:    end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &ca)
}

// issue signs template for a new key. Without a signer the certificate is self-signed.
func issue(template *x509.Certificate, signer *pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("generate key: %w", err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return pair{}, fmt.Errorf("choose serial number: %w", err)
	}
	parent, signingKey := template, key
	if signer != nil {
		parent, signingKey = signer.cert, signer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signingKey)
	if err != nil {
		return pair{}, fmt.Errorf("sign certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, fmt.Errorf("read back certificate: %w", err)
	}
	return pair{cert: cert, key: key}, nil
}

func certPEM(certs ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
