package agentjob

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// KeeperUser returns the user ID for the keeper of the Job of one Pod of an owner. Keepers see their node's processes, and the
// kernel separates them by user. Each attempt gives another user; the caller takes the first that no other live Job has.
func KeeperUser(owner, pod types.UID, attempt int) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", owner, pod, attempt))
	return captureconfig.FirstKeeperUser + int64(binary.BigEndian.Uint64(sum[:8])%captureconfig.KeeperUsers)
}
