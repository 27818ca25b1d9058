package processes

import (
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/sockets"
)

// A process binds a socket, passes it over a Unix socket and closes it. The receiver listens with it, and accepts connections. None of
// them may name the first process. After a scan they name the receiver.
func TestProcessesPassASocketThatListensLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Answers = []uint16{7000}
	stop := w.start()
	w.Run(7000, w.Program, "pass-bound")
	var s *sockets.Score
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && (s == nil || s.Right == 0); time.Sleep(50 * time.Millisecond) {
		w.Ask("tcp", podnet.TargetIP, 7000, 5)
		s = w.Scores(w.path)[7000]
	}
	if s = w.Scores(stop().Path)[7000]; s.Wrong > 0 || s.Right == 0 {
		t.Errorf("answers of the receiver: %+v", s)
	}
}
