package stamp

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Kinds that are stamped, as they go into the HMAC.
const (
	KindPacketCapture = string(sondev1.CapturePacketCapture)
	KindResultAccess  = "ResultAccess"
	KindFluentPVC     = "FluentPVC"
)

// MaxSkew is how far the time of admission may lie before or after the creation time.
const MaxSkew = 60 * time.Second

// domain separates this HMAC from others with the same key.
const domain = "sonde-stamp-v1"

// advice ends every refusal.
const advice = "create it again while the operator's webhook runs"

// Reasons why a stamp is refused, for errors.Is.
var (
	// ErrMissing: the object was created while no webhook ran.
	ErrMissing = errors.New("not stamped by the webhook")
	// ErrInvalid: the object or its stamp differs from the one that the webhook admitted.
	ErrInvalid = errors.New("its stamp is not valid")
)

// mutable fields may change after admission. They only end a capture, or start one that was requested.
var mutable = []string{"stop", "trigger"}

// Sign returns the two annotations that bind spec to c.Requester. namespace and kind are the object's, and spec is
// its typed spec, a struct or a pointer to one. The caller sets Requester, TargetNamespaceUID and IssuedAt of c.
func Sign(key []byte, namespace, kind string, spec any, c Claim) (map[string]string, error) {
	fields, err := fieldsOf(spec)
	if err != nil {
		return nil, err
	}
	c.Version, c.Fields, c.IssuedAt = Version, fields, c.IssuedAt.UTC().Truncate(time.Second)
	claim, err := c.marshal()
	if err != nil {
		return nil, err
	}
	mac, err := sum(key, namespace, kind, spec, fields, claim)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		sondev1.AnnotationRequester: string(claim),
		sondev1.AnnotationStamp:     hex.EncodeToString(mac),
	}, nil
}

// VerifyCapture calls Verify for a capture of any kind.
func VerifyCapture(key []byte, capture sondev1.Capture) (Claim, error) {
	return Verify(key, capture.GetNamespace(), capture.KindName(), capture.CaptureSpec(), capture.GetAnnotations(), capture.GetCreationTimestamp().Time)
}

// Verify returns the claim of an object if the webhook that holds key admitted exactly this object: this kind, namespace,
// spec (except stop and trigger), requester and time. created is the object's creationTimestamp, which no client can
// choose. The error wraps ErrMissing or ErrInvalid and says what the user should do.
func Verify(key []byte, namespace, kind string, spec any, annotations map[string]string, created time.Time) (Claim, error) {
	c, err := verifyAnyTime(key, namespace, kind, spec, annotations)
	if err != nil {
		return Claim{}, err
	}
	if skew := created.Sub(c.IssuedAt).Abs(); skew > MaxSkew {
		return Claim{}, fmt.Errorf("%s: %w (admitted %s away from its creation: it was copied from another, or the clocks of the API server and of the manager's node differ): %s",
			kind, ErrInvalid, skew.Round(time.Second), advice)
	}
	return c, nil
}

// verifyAnyTime is Verify for an object of any age. scope is what was signed in place of the namespace.
func verifyAnyTime(key []byte, scope, kind string, spec any, annotations map[string]string) (Claim, error) {
	text, signature := annotations[sondev1.AnnotationRequester], annotations[sondev1.AnnotationStamp]
	if text == "" || signature == "" {
		return Claim{}, fmt.Errorf("%s was %w: %s", kind, ErrMissing, advice)
	}
	c, err := ParseClaim(text)
	if err != nil {
		return Claim{}, fmt.Errorf("%s: %w (%w): %s", kind, ErrInvalid, err, advice)
	}
	got, err := hex.DecodeString(signature)
	if err != nil || len(got) != sha256.Size {
		return Claim{}, fmt.Errorf("%s: %w (not %d bytes in hex): %s", kind, ErrInvalid, sha256.Size, advice)
	}
	want, err := sum(key, scope, kind, spec, c.Fields, []byte(text))
	if err != nil {
		return Claim{}, err
	}
	if !hmac.Equal(got, want) {
		return Claim{}, fmt.Errorf("%s: %w (forged, copied, or changed since it was admitted): %s", kind, ErrInvalid, advice)
	}
	return c, nil
}

// sum returns the HMAC-SHA256 of a stamp.
func sum(key []byte, namespace, kind string, spec any, fields []string, claim []byte) ([]byte, error) {
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("sign %s: key of %d bytes, want %d", kind, len(key), KeyBytes)
	}
	body, err := canonical(spec, fields)
	if err != nil {
		return nil, err
	}
	return MAC(key, domain, namespace, kind, string(body), string(claim)), nil
}

// MAC returns the HMAC-SHA256 over the parts. The first part must be a domain that no other use of the key has. Each part has
// its length in front: without it, bytes could move from one part to the next.
func MAC(key []byte, parts ...string) []byte {
	h := hmac.New(sha256.New, key)
	for _, part := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

// canonical returns the JSON of those fields of spec that are immutable. It decodes and encodes the spec again, so that the
// order of keys depends on their names and not on the Go type of one version.
func canonical(spec any, fields []string) ([]byte, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("marshal spec: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // a float64 would merge neighbouring large numbers
	var all map[string]any
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("read spec: %w", err)
	}
	signed := map[string]any{}
	for _, f := range fields {
		if v, ok := all[f]; ok && !slices.Contains(mutable, f) {
			signed[f] = v
		}
	}
	b, err := json.Marshal(signed)
	if err != nil {
		return nil, fmt.Errorf("marshal signed spec: %w", err)
	}
	return b, nil
}

// fieldsOf lists the JSON names of spec's immutable fields, set or not: a field that this version knows and that was absent
// must stay absent.
func fieldsOf(spec any) ([]string, error) {
	t := reflect.TypeOf(spec)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("sign a spec of type %T: want a struct", spec)
	}
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && !slices.Contains(mutable, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 || len(names) > maxFields {
		return nil, fmt.Errorf("sign a spec of type %T: %d fields, want 1 to %d", spec, len(names), maxFields)
	}
	slices.Sort(names)
	return names, nil
}
