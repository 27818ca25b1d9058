package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// KeyBundle is the Secret's key of all authorities that may have signed the serving certificate, as PEM.
const KeyBundle = "ca-bundle.crt"

// The Secret's other keys.
const (
	keyCACert = "ca.crt"
	keyCAKey  = "ca.key"
	keyCert   = "tls.crt"
	keyKey    = "tls.key"
)

// maxBundle bounds the authorities in the bundle: the current one and earlier ones that have not expired.
const maxBundle = 4

// Material is the serving certificate and the authorities that clients trust.
type Material struct {
	// Serving is the certificate with its key.
	Serving tls.Certificate
	// CABundle is PEM: the current authority first, then earlier ones until they expire.
	CABundle []byte
}

// Plan returns the data that the Secret must have at now. Its current data is data, which is nil without a Secret. If
// changed is true, next differs from data and has to be written. Plan replaces parts that are malformed, expired or for other names,
// and keeps the rest.
//
// A new authority does not replace the serving certificate. The old one stays until it is due for renewal, and at least
// until the next check, when the API server has the new authority in its bundle. So no request fails during the rotation.
func Plan(now time.Time, data map[string][]byte, names []string) (next map[string][]byte, m Material, changed bool, err error) {
	ca, caErr := parsePair(data[keyCACert], data[keyCAKey])
	newAuthority := caErr != nil || !usableCA(now, ca.cert)
	if newAuthority {
		if ca, err = newCA(now); err != nil {
			return nil, Material{}, false, fmt.Errorf("make authority: %w", err)
		}
	}
	bundle := bundleOf(now, ca.cert, data)

	leaf, leafErr := parsePair(data[keyCert], data[keyKey])
	if leafErr != nil || !accepted(now, leaf.cert, bundle, names) || (!fresh(now, leaf.cert) && !newAuthority) {
		if leaf, err = newLeaf(now, ca, names); err != nil {
			return nil, Material{}, false, fmt.Errorf("make serving certificate: %w", err)
		}
	}
	next, err = encode(ca, leaf, bundle)
	if err != nil {
		return nil, Material{}, false, err
	}
	for k, v := range next {
		changed = changed || !bytes.Equal(data[k], v)
	}
	return next, Material{
		Serving:  tls.Certificate{Certificate: [][]byte{leaf.cert.Raw}, PrivateKey: leaf.key, Leaf: leaf.cert},
		CABundle: next[KeyBundle],
	}, changed, nil
}

func encode(ca, leaf pair, bundle []*x509.Certificate) (map[string][]byte, error) {
	caKey, err := keyPEM(ca.key)
	if err != nil {
		return nil, err
	}
	leafKey, err := keyPEM(leaf.key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		keyCACert: certPEM(ca.cert), keyCAKey: caKey,
		keyCert: certPEM(leaf.cert), keyKey: leafKey,
		KeyBundle: certPEM(bundle...),
	}, nil
}

// bundleOf returns the current authority and the earlier ones of the Secret that may have signed a certificate in use.
func bundleOf(now time.Time, ca *x509.Certificate, data map[string][]byte) []*x509.Certificate {
	bundle := []*x509.Certificate{ca}
	for _, c := range append(parseCerts(data[keyCACert]), parseCerts(data[KeyBundle])...) {
		known := slices.ContainsFunc(bundle, c.Equal)
		if known || len(bundle) == maxBundle || !isCA(c) || !now.Before(c.NotAfter) || now.Before(c.NotBefore) {
			continue
		}
		bundle = append(bundle, c)
	}
	return bundle
}

func isCA(c *x509.Certificate) bool {
	return c.IsCA && c.Subject.CommonName == caName && c.CheckSignatureFrom(c) == nil
}

func usableCA(now time.Time, c *x509.Certificate) bool { return isCA(c) && fresh(now, c) }

// accepted reports whether clients that trust bundle accept c for all names at now.
func accepted(now time.Time, c *x509.Certificate, bundle []*x509.Certificate, names []string) bool {
	roots := x509.NewCertPool()
	for _, ca := range bundle {
		roots.AddCert(ca)
	}
	for _, n := range names {
		opts := x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: n, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		if _, err := c.Verify(opts); err != nil {
			return false
		}
	}
	return true
}

// fresh reports whether c is valid and at least a third of its life is left.
func fresh(now time.Time, c *x509.Certificate) bool {
	return !now.Before(c.NotBefore) && c.NotAfter.Sub(now) >= c.NotAfter.Sub(c.NotBefore)/3
}

// parsePair reads one certificate and its key, and checks that they belong together.
func parsePair(certPEM, keyPEM []byte) (pair, error) {
	certs := parseCerts(certPEM)
	if len(certs) != 1 {
		return pair{}, fmt.Errorf("%d certificates, want 1", len(certs))
	}
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return pair{}, errors.New("no key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return pair{}, fmt.Errorf("parse key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(certs[0].PublicKey) {
		return pair{}, errors.New("the key is not the certificate's")
	}
	return pair{cert: certs[0], key: key}, nil
}

// parseCerts returns the certificates of a PEM text, and skips all other blocks.
func parseCerts(text []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil && len(out) < 2*maxBundle; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			out = append(out, c)
		}
	}
	return out
}
