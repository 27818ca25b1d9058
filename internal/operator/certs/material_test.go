package certs

import (
	"bytes"
	"crypto/x509"
	"maps"
	"testing"
	"time"
)

var (
	start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	names = []string{"sonde-webhook.sonde-system.svc", "sonde-results.sonde-system.svc"}
)

func plan(t *testing.T, now time.Time, data map[string][]byte) (map[string][]byte, Material, bool) {
	t.Helper()
	next, m, changed, err := Plan(now, data, names)
	if err != nil {
		t.Fatal(err)
	}
	return next, m, changed
}

// trusts fails the test unless a client with bundle takes m for each name at now.
func trusts(t *testing.T, now time.Time, bundle []byte, m Material) {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("the bundle holds no certificate")
	}
	for _, n := range names {
		if _, err := m.Serving.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: n}); err != nil {
			t.Errorf("a client does not take the certificate for %s: %v", n, err)
		}
	}
}

func TestPlan(t *testing.T) {
	const day = 24 * time.Hour
	for name, tc := range map[string]struct {
		after    time.Duration // since the Secret was made
		change   func(map[string][]byte)
		wantCA   bool // a new authority
		wantLeaf bool // a new serving certificate
	}{
		"unchanged":                     {},
		"a day before the leaf's third": {after: leafLife*2/3 - day},
		"a day after the leaf's third":  {after: leafLife*2/3 + day, wantLeaf: true},
		"the leaf has expired":          {after: leafLife + day, wantLeaf: true},
		"the authority has expired":     {after: caLife + day, wantCA: true, wantLeaf: true},
		"the clock went back":           {after: -day, wantCA: true, wantLeaf: true},
		"no leaf":                       {change: func(d map[string][]byte) { delete(d, keyCert) }, wantLeaf: true},
		"no key of the leaf":            {change: func(d map[string][]byte) { delete(d, keyKey) }, wantLeaf: true},
		"noise for a leaf":              {change: func(d map[string][]byte) { d[keyCert] = []byte("noise") }, wantLeaf: true},
		"the authority's key for the leaf's": {
			change: func(d map[string][]byte) { d[keyKey] = d[keyCAKey] }, wantLeaf: true,
		},
		"two certificates for one": {
			change: func(d map[string][]byte) { d[keyCert] = append(bytes.Clone(d[keyCert]), d[keyCert]...) }, wantLeaf: true,
		},
		"the leaf of a stranger": {change: func(d map[string][]byte) {
			other, _, _, _ := Plan(start, nil, names)
			d[keyCert], d[keyKey] = other[keyCert], other[keyKey]
		}, wantLeaf: true},
		"the leaf as authority": {change: func(d map[string][]byte) {
			d[keyCACert], d[keyCAKey] = d[keyCert], d[keyKey]
		}, wantCA: true},
		"the leaf is the authority": {change: func(d map[string][]byte) {
			d[keyCert], d[keyKey] = d[keyCACert], d[keyCAKey]
		}, wantLeaf: true},
		"no authority's key": {change: func(d map[string][]byte) { delete(d, keyCAKey) }, wantCA: true},
		"nothing at all":     {change: func(d map[string][]byte) { clear(d) }, wantCA: true, wantLeaf: true},
		"no bundle":          {change: func(d map[string][]byte) { delete(d, KeyBundle) }},
		"noise for a bundle": {change: func(d map[string][]byte) { d[KeyBundle] = []byte("noise") }},
	} {
		t.Run(name, func(t *testing.T) {
			data, _, _ := plan(t, start, nil)
			was := maps.Clone(data)
			if tc.change != nil {
				tc.change(data)
			}
			now := start.Add(tc.after)
			next, m, _ := plan(t, now, data)
			if got := !bytes.Equal(next[keyCACert], was[keyCACert]); got != tc.wantCA {
				t.Errorf("new authority: %t, want %t", got, tc.wantCA)
			}
			if got := !bytes.Equal(next[keyCert], was[keyCert]); got != tc.wantLeaf {
				t.Errorf("new serving certificate: %t, want %t", got, tc.wantLeaf)
			}
			trusts(t, now, m.CABundle, m)
			if _, _, again := plan(t, now, next); again {
				t.Error("a second Plan changes the data again")
			}
		})
	}
}

func TestNothingFailsWhileANewAuthoritySpreads(t *testing.T) {
	data, _, _ := plan(t, start, nil)
	oldBundle := data[KeyBundle]
	seen := map[string]bool{string(data[keyCACert]): true}
	installed := oldBundle // the bundle of the API server, always one check old
	for now := start; now.Before(start.Add(3 * caLife)); now = now.Add(20 * 24 * time.Hour) {
		next, m, _ := plan(t, now, data)
		trusts(t, now, installed, m)
		if n := len(parseCerts(m.CABundle)); n > maxBundle {
			t.Fatalf("%d authorities in the bundle, at most %d", n, maxBundle)
		}
		data, installed = next, m.CABundle
		seen[string(data[keyCACert])] = true
	}
	if len(seen) < 4 {
		t.Errorf("%d authorities in three lifetimes, want at least 4", len(seen))
	}
	if bytes.Contains(installed, oldBundle) {
		t.Error("an authority stays in the bundle after it has expired")
	}
}

func TestNewNamesNeedANewCertificate(t *testing.T) {
	data, _, _ := plan(t, start, nil)
	next, m, changed, err := Plan(start, data, append([]string{"another.sonde-system.svc"}, names...))
	if err != nil || !changed || m.Serving.Leaf.VerifyHostname("another.sonde-system.svc") != nil {
		t.Errorf("changed %t, names %v (%v)", changed, m.Serving.Leaf.DNSNames, err)
	}
	if !bytes.Equal(next[keyCACert], data[keyCACert]) {
		t.Error("a new name made a new authority")
	}
}

// FuzzPlan: for any data in the Secret, clients can verify the certificate that is served.
func FuzzPlan(f *testing.F) {
	data, _, _, err := Plan(start, nil, names)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[keyCACert], data[keyCAKey], data[keyCert], data[keyKey], data[KeyBundle])
	f.Add(data[keyCert], data[keyKey], data[keyCACert], data[keyCAKey], []byte{})
	f.Fuzz(func(t *testing.T, caCert, caKey, cert, key, bundle []byte) {
		_, m, _ := plan(t, start, map[string][]byte{keyCACert: caCert, keyCAKey: caKey, keyCert: cert, keyKey: key, KeyBundle: bundle})
		trusts(t, start, m.CABundle, m)
	})
}
