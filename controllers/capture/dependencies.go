package capture

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pcapfilter"
	"github.com/sonde-operator/sonde/internal/operator/sealed"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// Stamps returns who requested a capture, and who stopped it, "" if that is not known. stamp.ErrMissing and stamp.ErrInvalid are
// refusals; other errors are retried.
type Stamps interface {
	Verify(capture sondev1.Capture) (stamp.Claim, error)
	StoppedBy(capture sondev1.Capture) string
}

// StampKey is the key that the webhook signs with; it implements Stamps.
type StampKey []byte

// Verify returns the claim that the webhook signed for a capture.
func (k StampKey) Verify(capture sondev1.Capture) (stamp.Claim, error) {
	return stamp.VerifyCapture(k, capture)
}

// StoppedBy returns the user whose stop of a capture the webhook signed.
func (k StampKey) StoppedBy(capture sondev1.Capture) string { return stamp.StoppedBy(k, capture) }

// Filters compiles pcap-filter expressions for a user; filterpool.Pool implements it. A *pcapfilter.SyntaxError is the user's
// mistake; other errors are retried.
type Filters interface {
	Compile(ctx context.Context, requester, expression string, link pcapfilter.LinkType, snapLen int) (bpfprog.Program, error)
}

// Keepers calls the keeper of an agent's Pod. Stop ends its probe for one of the reasons Stopped, TargetGone, AccessRevoked and
// Paused. secret names the Secret of the capture.
type Keepers interface {
	Stop(ctx context.Context, podIP, secret, reason string) error
	// Recount returns the account of a dead probe, counted from its files.
	Recount(ctx context.Context, podIP, secret string) (account.Account, error)
	// Progress returns the account of a running probe.
	Progress(ctx context.Context, podIP, secret string) (account.Account, error)
}

// KeeperCalls implements Keepers by calls to the keepers themselves.
type KeeperCalls struct {
	// Reader reads Secrets live: the cache holds no private keys.
	Reader    client.Reader
	Namespace string
	// Key of the manager, with which its own key in each Secret is sealed.
	Key []byte
	// Timeout of a call. A keeper answers at once, or not at all.
	Timeout time.Duration
}

// recountTimeout bounds a recount, which reads whole files: gigabytes take seconds.
const recountTimeout = 15 * time.Second

// Stop calls the keeper with the capture's key pair.
func (k KeeperCalls) Stop(ctx context.Context, podIP, secret, reason string) error {
	return k.call(ctx, k.Timeout, secret, func(ctx context.Context, c *keeperapi.Client) error {
		return c.Stop(ctx, keeperAt(podIP), reason)
	})
}

// Recount calls the keeper with the capture's key pair.
func (k KeeperCalls) Recount(ctx context.Context, podIP, secret string) (a account.Account, err error) {
	err = k.call(ctx, recountTimeout, secret, func(ctx context.Context, c *keeperapi.Client) (err error) {
		a, err = c.Recount(ctx, keeperAt(podIP))
		return err
	})
	return a, err
}

// Progress calls the keeper with the capture's key pair.
func (k KeeperCalls) Progress(ctx context.Context, podIP, secret string) (a account.Account, err error) {
	err = k.call(ctx, k.Timeout, secret, func(ctx context.Context, c *keeperapi.Client) (err error) {
		a, err = c.Progress(ctx, keeperAt(podIP))
		return err
	})
	return a, err
}

// call reads the capture's key pair and makes one call with it.
func (k KeeperCalls) call(ctx context.Context, timeout time.Duration, secret string, do func(context.Context, *keeperapi.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var pairs corev1.Secret
	if err := k.Reader.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: secret}, &pairs); err != nil {
		return fmt.Errorf("get secret %s: %w", secret, err)
	}
	own, err := sealed.Open(k.Key, secret, captureconfig.SecretClientKey, pairs.Data[captureconfig.SecretClientKey])
	if err != nil {
		return fmt.Errorf("call the keepers: %w", err)
	}
	c, err := keeperapi.NewClient(pairs.Data[captureconfig.SecretServerCert], pairs.Data[captureconfig.SecretClientCert], own)
	if err != nil {
		return fmt.Errorf("call the keepers of secret %s: %w", secret, err)
	}
	defer c.Close()
	return do(ctx, c)
}

func keeperAt(podIP string) string {
	return net.JoinHostPort(podIP, strconv.Itoa(captureconfig.KeeperPort))
}
