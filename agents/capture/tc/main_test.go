package tc

import (
	"os"
	"testing"

	"github.com/sonde-operator/sonde/test/sockets"
)

func TestMain(m *testing.M) { os.Exit(sockets.Run(m)) }
