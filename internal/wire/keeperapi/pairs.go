package keeperapi

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

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// clockSkew is how far the clocks of the manager's node and the target's may differ.
const clockSkew = time.Hour

// clientName is the subject of the manager's certificate; it is not checked.
const clientName = "manager"

// GeneratePairs makes the two key pairs of one capture, valid from now for validity, and clockSkew before and after. The
// result is the data of the Secret: keys are captureconfig.Secret*, values are PEM.
func GeneratePairs(now time.Time, validity time.Duration) (map[string][]byte, error) {
	serverCert, serverKey, err := newPair(now, validity, ServerName, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, fmt.Errorf("make the keeper's key pair: %w", err)
	}
	clientCert, clientKey, err := newPair(now, validity, clientName, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, fmt.Errorf("make the manager's key pair: %w", err)
	}
	return map[string][]byte{
		captureconfig.SecretServerCert: serverCert,
		captureconfig.SecretServerKey:  serverKey,
		captureconfig.SecretClientCert: clientCert,
		captureconfig.SecretClientKey:  clientKey,
	}, nil
}

// newPair returns a P-256 key and its self-signed certificate, both PEM. The certificate must not sign others.
func newPair(now time.Time, validity time.Duration, name string, usage x509.ExtKeyUsage) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("choose serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              []string{name},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(validity + clockSkew),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{usage},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}
