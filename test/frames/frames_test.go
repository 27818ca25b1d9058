package frames_test

import (
	"testing"

	"github.com/sonde-operator/sonde/test/frames"
)

func TestFrames(t *testing.T) {
	for name, group := range map[string]func() (map[string][]byte, error){"all": frames.All, "more": frames.More} {
		made, err := group()
		if err != nil || len(made) < 80 {
			t.Errorf("%s: %d frames, error %v", name, len(made), err)
		}
	}
}
