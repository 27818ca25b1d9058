package podstreams

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

func update(uid string, files ...string) results.Update {
	u := results.Update{UID: uid, Pod: "web-" + uid, Account: &account.Account{Counts: account.Counts{Packets: 4, Overwritten: 3}}}
	for _, f := range files {
		u.Account.Files = append(u.Account.Files, account.File{Name: f})
	}
	return u
}

// Each Pod is read once, when the name of a file with the suffix is known, and not more Pods at once than there are places.
func TestGroup(t *testing.T) {
	var mu sync.Mutex
	got, most, now := map[Pod]int{}, 0, 0
	g := New(t.Context(), Options{Suffix: ".pcapng", Most: 2, Read: func(_ context.Context, p Pod) error {
		mu.Lock()
		got[p]++
		now++
		most = max(most, now)
		mu.Unlock()
		mu.Lock()
		now--
		mu.Unlock()
		if p.UID == "2" {
			return errors.New("damaged")
		}
		return nil
	}})
	g.Update(results.Update{UID: "0"})
	for range 2 {
		for _, uid := range []string{"1", "2", "3", "4", "5"} {
			g.Update(update(uid, uid+".log", uid+".pcapng"))
		}
	}
	if err := g.Drain(t.Context()); err == nil || err.Error() != "damaged" {
		t.Errorf("Drain: %v", err)
	}
	if len(got) != 5 || got[Pod{"3", "web-3", "3.pcapng", 7}] != 1 || most > 2 || g.Pods() != 6 {
		t.Errorf("read %v, %d at once, of %d Pods", got, most, g.Pods())
	}
}

// The end of the context ends readers without an error, and no Pod is read afterwards.
func TestGroupEnds(t *testing.T) {
	g := New(t.Context(), Options{Suffix: ".pcapng", Most: 1, Read: func(ctx context.Context, _ Pod) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}})
	g.Update(update("1", "1.pcapng"))
	g.Update(update("2", "2.pcapng"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Drain(ctx); err != nil {
		t.Errorf("Drain: %v", err)
	}
	g.Update(update("3", "3.pcapng"))
	if err := g.Drain(t.Context()); err != nil {
		t.Errorf("Drain: %v", err)
	}
}
