package keeperapi

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// ServerTLS returns the keeper's configuration: its own pair, and the one certificate that a client must present. All are PEM.
func ServerTLS(serverCertPEM, serverKeyPEM, clientCertPEM []byte) (*tls.Config, error) {
	c, pool, pinned, err := baseConfig(serverCertPEM, serverKeyPEM, clientCertPEM)
	if err != nil {
		return nil, fmt.Errorf("load the keeper's key material: %w", err)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.ClientCAs = pool
	c.VerifyConnection = pinPeer(pinned)
	return c, nil
}

// clientTLS returns the manager's configuration.
func clientTLS(serverCertPEM, clientCertPEM, clientKeyPEM []byte) (*tls.Config, error) {
	c, pool, pinned, err := baseConfig(clientCertPEM, clientKeyPEM, serverCertPEM)
	if err != nil {
		return nil, fmt.Errorf("load the manager's key material for a keeper: %w", err)
	}
	c.RootCAs = pool
	c.ServerName = ServerName
	c.VerifyConnection = pinPeer(pinned)
	return c, nil
}

// baseConfig returns the parts of both sides: TLS 1.3, their own pair, and the peer's certificate.
func baseConfig(ownCert, ownKey, peerCert []byte) (*tls.Config, *x509.CertPool, *x509.Certificate, error) {
	pair, err := tls.X509KeyPair(ownCert, ownKey)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("own key pair: %w", err)
	}
	block, rest := pem.Decode(peerCert)
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, nil, nil, errors.New("the other side's certificate: want exactly one PEM block CERTIFICATE")
	}
	peer, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("the other side's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(peer)
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{pair},
		NextProtos:             []string{"http/1.1"},
		SessionTicketsDisabled: true,
	}, pool, peer, nil
}

// pinPeer refuses every certificate except pinned. The pool would also accept a certificate that pinned has signed, if
// pinned were allowed to sign.
func pinPeer(pinned *x509.Certificate) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) != 1 || !bytes.Equal(s.PeerCertificates[0].Raw, pinned.Raw) {
			return errors.New("the other side's certificate is not the one that is pinned for this capture")
		}
		return nil
	}
}
