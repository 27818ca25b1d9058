package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// AuditEvent holds the fields that tests read from a line of the audit log.
type AuditEvent struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestReceivedTimestamp time.Time         `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time         `json:"stageTimestamp"`
	Annotations              map[string]string `json:"annotations"`
}

// ManagerWrites returns the manager's writing requests since a time, except those for leases: a timer writes them.
func ManagerWrites(t *testing.T, since time.Time) Calls {
	t.Helper()
	return ManagerCalls(t, since).Writes()
}

// QuietFor returns a check for Eventually that passes when the manager's last write is at least d ago.
func QuietFor(t *testing.T, d time.Duration) func(context.Context) error {
	t.Helper()
	return func(context.Context) error {
		if n := len(ManagerWrites(t, time.Now().Add(-d))); n > 0 {
			return fmt.Errorf("%d writes in the last %s", n, d)
		}
		return nil
	}
}

// ManagerUser is the user name of the manager's ServiceAccount.
const ManagerUser = "system:serviceaccount:" + OperatorNamespace + ":sonde-manager"

// AuditEvents returns all requests that ended after a point in time.
func AuditEvents(t *testing.T, since time.Time) []AuditEvent {
	t.Helper()
	f, err := os.Open(AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var found []AuditEvent
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var e AuditEvent
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.StageTimestamp.Before(since) { // the last line may be incomplete
			continue
		}
		found = append(found, e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// ChangesPath reports whether a request may belong to the hourly change of the webhooks' secret path: the leader patches their
// configurations, and reads the ClusterRole that owns them.
func (e AuditEvent) ChangesPath() bool {
	call := e.Verb + " " + e.ObjectRef.Resource
	return call == "patch mutatingwebhookconfigurations" || call == "get clusterroles"
}

// Calls are requests of the manager's replicas.
type Calls []AuditEvent

// ManagerCalls returns the manager's requests that ended after a point in time.
func ManagerCalls(t *testing.T, since time.Time) Calls {
	t.Helper()
	return slices.DeleteFunc(AuditEvents(t, since), func(e AuditEvent) bool { return e.User.Username != ManagerUser })
}

// Writes returns the requests that change something or ask for a review, which is a POST too. It leaves out leases and
// the webhooks' secret path: timers write them.
func (c Calls) Writes() Calls {
	return slices.DeleteFunc(slices.Clone(c), func(e AuditEvent) bool {
		return e.ObjectRef.Resource == "leases" || e.ChangesPath() || !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb)
	})
}

// Reviews returns the requests that ask for a review. The API server stores nothing for them.
func (c Calls) Reviews() Calls {
	return slices.DeleteFunc(slices.Clone(c), func(e AuditEvent) bool { return !strings.HasSuffix(e.ObjectRef.Resource, "reviews") })
}

// ByVerb counts requests by verb and resource.
func (c Calls) ByVerb() map[string]int {
	n := map[string]int{}
	for _, e := range c {
		n[e.Verb+" "+e.ObjectRef.Resource]++
	}
	return n
}
