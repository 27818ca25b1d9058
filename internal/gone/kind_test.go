package gone

import (
	"errors"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestKind: only a kind that is missing for a while counts as gone.
func TestKind(t *testing.T) {
	page := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "404 page not found", 0, true)
	object := apierrors.NewNotFound(schema.GroupResource{Resource: "traces"}, "web")
	if Is(page) || !Is(object) || Ignore(object) != nil || Ignore(page) == nil {
		t.Error("a page counts as an object, or an object as none")
	}
	for name, tc := range map[string]struct {
		answers []error
		pause   time.Duration
		want    bool
	}{
		"for a while":        {[]error{page, page, page}, 15 * time.Second, true},
		"for a moment":       {[]error{page, page, page}, time.Second, false},
		"twice":              {[]error{page, page}, time.Minute, false},
		"with an interval":   {[]error{page, page, nil, page}, time.Minute, false},
		"an object":          {[]error{object, object, object}, time.Minute, false},
		"no answer":          {[]error{page, page, errors.New("refused")}, time.Minute, false},
		"again after a time": {[]error{page, nil, page, page, page}, 15 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			var k Kind
			now, got := time.Unix(0, 0), false
			for _, err := range tc.answers {
				got = k.Note(err, now)
				now = now.Add(tc.pause)
			}
			if got != tc.want {
				t.Errorf("gone: %t", got)
			}
		})
	}
}
