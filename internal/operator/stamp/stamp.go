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
)

// MaxSkew is how far the time of admission may lie from the creation time, either way.
const MaxSkew = 60 * time.Second

// domain keeps this HMAC apart from any other that might ever be made with the same key.
const domain = "sonde-stamp-v1"

// whatToDo ends every refusal.
const whatToDo = "create it again while the operator's webhook runs"

// Reasons why a stamp is refused, for errors.Is.
var (
	// ErrMissing: the resource was made while no webhook was there.
	ErrMissing = errors.New("not stamped by the webhook")
	// ErrInvalid: the resource, or its stamp, is not what the webhook admitted.
	ErrInvalid = errors.New("its stamp is not valid")
)

// mutable are the fields that may change after admission: they only ever end a capture, or start
// one that was asked for.
var mutable = []string{"stop", "trigger"}

// Sign returns the two annotations that bind spec to c.Requester. namespace and kind are those of
// the resource; spec is its typed spec, a struct or a pointer to one. c needs Requester,
// TargetNamespaceUID and IssuedAt; the rest is filled in.
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

// VerifyCapture is Verify of a capture of any kind.
func VerifyCapture(key []byte, capture sondev1.Capture) (Claim, error) {
	return Verify(key, capture.GetNamespace(), capture.KindName(), capture.CaptureSpec(), capture.GetAnnotations(), capture.GetCreationTimestamp().Time)
}

// Verify returns the claim of a resource if the webhook that holds key admitted exactly this: this
// kind, in this namespace, with this spec but for stop and trigger, for this requester, at this
// time. created is the resource's creationTimestamp, which no client can choose. The error, which
// is ErrMissing or ErrInvalid, tells the user what to do.
func Verify(key []byte, namespace, kind string, spec any, annotations map[string]string, created time.Time) (Claim, error) {
	text, signature := annotations[sondev1.AnnotationRequester], annotations[sondev1.AnnotationStamp]
	if text == "" || signature == "" {
		return Claim{}, fmt.Errorf("%s was %w: %s", kind, ErrMissing, whatToDo)
	}
	c, err := ParseClaim(text)
	if err != nil {
		return Claim{}, fmt.Errorf("%s: %w (%w): %s", kind, ErrInvalid, err, whatToDo)
	}
	got, err := hex.DecodeString(signature)
	if err != nil || len(got) != sha256.Size {
		return Claim{}, fmt.Errorf("%s: %w (not %d bytes in hex): %s", kind, ErrInvalid, sha256.Size, whatToDo)
	}
	want, err := sum(key, namespace, kind, spec, c.Fields, []byte(text))
	if err != nil {
		return Claim{}, err
	}
	if !hmac.Equal(got, want) {
		return Claim{}, fmt.Errorf("%s: %w (forged, copied, or changed since it was admitted): %s", kind, ErrInvalid, whatToDo)
	}
	if skew := created.Sub(c.IssuedAt).Abs(); skew > MaxSkew {
		return Claim{}, fmt.Errorf("%s: %w (admitted %s away from its creation, as if copied from another): %s",
			kind, ErrInvalid, skew.Round(time.Second), whatToDo)
	}
	return c, nil
}

// sum is the HMAC-SHA256 over the length-prefixed parts: without lengths, bytes could move from
// one part to the next.
func sum(key []byte, namespace, kind string, spec any, fields []string, claim []byte) ([]byte, error) {
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("sign %s: key of %d bytes, want %d", kind, len(key), KeyBytes)
	}
	body, err := canonical(spec, fields)
	if err != nil {
		return nil, err
	}
	h := hmac.New(sha256.New, key)
	for _, part := range [][]byte{[]byte(domain), []byte(namespace), []byte(kind), body, claim} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return h.Sum(nil), nil
}

// canonical is the JSON of spec, reduced to fields less the mutable ones. It is decoded and written
// anew, so that the order of keys follows from their names and not from the types of one version.
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

// fieldsOf lists the JSON names of spec's fields, whether set or not: a field that this version
// knows and that was absent must stay absent.
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
