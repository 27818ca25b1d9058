package stamp

import (
	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// SignFluentPVC returns the two annotations that bind the name and the spec of f to c.Requester, who created f or changed it
// last. The caller sets Requester and IssuedAt of c.
func SignFluentPVC(key []byte, f *sondev1.FluentPVC, c Claim) (map[string]string, error) {
	return Sign(key, f.Name, KindFluentPVC, &f.Spec, c)
}

// VerifyFluentPVC returns the claim of f if the webhook that holds key admitted a FluentPVC with exactly this name and spec. A
// FluentPVC is changed long after its creation, so the stamp has no bound in time. Its name stands where the stamps of other kinds
// have their namespace: a stamp copied to another FluentPVC is invalid. The error wraps ErrMissing or ErrInvalid.
//
// A stamp of an earlier spec stays valid for that spec. Whoever may update FluentPVCs can bring such a spec back, but only while
// the webhook is not called, and only under this name.
func VerifyFluentPVC(key []byte, f *sondev1.FluentPVC) (Claim, error) {
	return verifyAnyTime(key, f.Name, KindFluentPVC, &f.Spec, f.Annotations)
}
