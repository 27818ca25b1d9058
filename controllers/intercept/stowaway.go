package intercept

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sonde-operator/sonde/internal/wire/text"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// StowawayClient is the manager's side of the connection to Stowaway.
type StowawayClient interface {
	// Status returns what Stowaway reports about clients and carriers.
	Status(context.Context, *stowawayObjects) (*tunnel.Status, error)
	// Push replaces Stowaway's state.
	Push(context.Context, *stowawayObjects, tunnel.State) error
	// Close ends the connection. The next call opens another one.
	Close()
}

const (
	// stowawayTimeout bounds one request to Stowaway, and a connection to it.
	stowawayTimeout = 3 * time.Second
	// maxRefusal in bytes is what the manager's log has of a refusal, or of why a connection ended. Both come from a process that may have been
	// taken over.
	maxRefusal = 1 << 10
)

// Stowaway is the manager's connection to Stowaway. It is made when it is needed, and kept.
type Stowaway struct {
	mu   sync.Mutex
	peer *tunnel.Peer
	// to is the key of the Stowaway that peer is connected to.
	to tunnel.PublicKey
}

// Close ends the connection.
func (s *Stowaway) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disconnect()
}

func (s *Stowaway) disconnect() {
	if s.peer != nil {
		s.peer.Close()
		s.peer = nil
	}
}

// Status asks for Stowaway's status.
func (s *Stowaway) Status(ctx context.Context, o *stowawayObjects) (*tunnel.Status, error) {
	body, err := s.do(ctx, o, http.MethodGet, tunnel.PathStatus, nil)
	if err != nil {
		return nil, err
	}
	return tunnel.ParseStatus(body)
}

// Push replaces Stowaway's state.
func (s *Stowaway) Push(ctx context.Context, o *stowawayObjects, state tunnel.State) error {
	body, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("marshal state: %w", err)
	}
	_, err = s.do(ctx, o, http.MethodPut, tunnel.PathState, body)
	return err
}

func (s *Stowaway) do(ctx context.Context, o *stowawayObjects, method, path string, body []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, stowawayTimeout)
	defer cancel()
	if err := s.connect(ctx, o); err != nil {
		return nil, err
	}
	r, err := tunnel.NewRequest(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := s.peer.Do(r)
	if err != nil {
		s.disconnect()
		return nil, fmt.Errorf("ask Stowaway: %s", text.OneLine(err.Error(), maxRefusal))
	}
	defer response.Body.Close()
	most, refused := int64(tunnel.MaxStatus), response.StatusCode/100 != 2
	if refused {
		most = maxRefusal
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		s.disconnect()
		return nil, fmt.Errorf("read Stowaway's answer: %s", text.OneLine(err.Error(), maxRefusal))
	}
	if refused {
		return nil, fmt.Errorf("Stowaway answers %d: %s", response.StatusCode, text.OneLine(string(answer), maxRefusal))
	}
	return answer, nil
}

func (s *Stowaway) connect(ctx context.Context, o *stowawayObjects) error {
	if s.peer != nil {
		select {
		case <-s.peer.Gone():
		default:
			if s.to == o.key {
				return nil
			}
		}
		s.disconnect()
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(o.address, strconv.Itoa(tunnel.PeerPort)))
	if err != nil {
		return fmt.Errorf("connect to Stowaway: %w", err)
	}
	secure := tls.Client(c, o.manager.ClientTLS(o.key))
	if err := tunnel.Handshake(ctx, secure); err != nil {
		return fmt.Errorf("connect to Stowaway: %w", err)
	}
	if s.peer, err = tunnel.NewPeer(secure, tunnel.Near); err != nil {
		_ = secure.Close()
		return err
	}
	s.to = o.key
	return nil
}

// memory is what one process of the manager remembers between passes.
type memory struct {
	// deployed is the manager's key with which this process has applied the Deployment. An operator of another version is another
	// process, so it applies its own.
	deployed tunnel.PublicKey
	// failures is how often in a row the carrier of a Pod has failed, by the Pod's UID.
	failures map[types.UID]int
	// nodes that were read, if a target's Pod names them.
	nodes map[string]nodeReading
	// stowawayAbsent reports that a pass without InterceptRequests found no part of Stowaway.
	stowawayAbsent bool
	// stowaway is what was last read of it; nil if nothing was.
	stowaway *stowawayObjects
	// pushed is when Stowaway last took a state.
	pushed time.Time
}
