package memapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrDead is the answer to every request of a crashed manager.
var ErrDead = errors.New("the manager is dead")

// Fault is a disturbance of one request to the API server.
type Fault struct {
	Name string
	// Err is the answer to the manager. Done reports that the server executed the request nevertheless.
	Err  error
	Done bool
	// Before and After run before and after the request reaches the server.
	Before, After func()
}

// Faults are wrong answers of an API server, or of a proxy before it. Only writes can fail and be done.
var Faults = []Fault{
	{Name: "500", Err: apierrors.NewInternalError(errors.New("injected"))},
	{Name: "429", Err: apierrors.NewTooManyRequests("injected", 1)},
	{Name: "503", Err: apierrors.NewServiceUnavailable("injected")},
	{Name: "timeout, not done", Err: fmt.Errorf("injected: %w", context.DeadlineExceeded)},
	{Name: "404 for a moment", Err: apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "404 page not found", 0, true)},
	{Name: "403", Err: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("injected"))},
	{Name: "409", Err: apierrors.NewConflict(schema.GroupResource{}, "", errors.New("injected"))},
	{Name: "timeout, done", Err: fmt.Errorf("injected: %w", context.DeadlineExceeded), Done: true},
}

// ReadFaults is the number of Faults that reads can have, the first ones.
const ReadFaults = 6

// Requests are the requests of one manager.
type Requests struct {
	// Name of the manager.
	Name string
	// Dead says that it has crashed: it gets ErrDead for every request.
	Dead bool
	// Choose returns the fault of a request.
	Choose func(verb string, key Key, write bool) Fault
	// Refuse returns the API server's refusal of a write, for example because a right is missing, or nil. It may be nil.
	Refuse func(verb string, key Key) error
	// Arrives is called before a request reaches the server. It may be nil.
	Arrives func(key Key)
	// Written is called after a write that reached the server, with its true answer.
	Written func(verb string, key Key, err error)
	// Deleted is called after a deletion, with the object that was there. It may be nil.
	Deleted func(client.Object)
	Trace   func(format string, args ...any)
}

// Call sends one request to the API server, with the fault that Choose returns.
func (r *Requests) Call(verb string, key Key, write bool, do func() error) error {
	if r.Dead {
		return ErrDead
	}
	f := r.Choose(verb, key, write)
	if f.Before != nil {
		f.Before()
		if r.Dead {
			r.Trace("%s dies before %s %s", r.Name, verb, key)
			return ErrDead
		}
	}
	if f.Err != nil && !f.Done {
		r.Trace("%s %s %s: %s", r.Name, verb, key, f.Name)
		return f.Err
	}
	if r.Arrives != nil {
		r.Arrives(key)
	}
	err := r.refusal(verb, key, write)
	if err == nil {
		err = do()
	}
	if write {
		r.Trace("%s %s %s: %v", r.Name, verb, key, ErrText(err))
		r.Written(verb, key, err)
	}
	if f.After != nil {
		f.After()
		if r.Dead {
			r.Trace("%s dies after %s %s", r.Name, verb, key)
			return ErrDead
		}
	}
	if f.Err != nil {
		r.Trace("%s %s %s: done, but %s", r.Name, verb, key, f.Name)
		return f.Err
	}
	return err
}

func (r *Requests) refusal(verb string, key Key, write bool) error {
	if !write || r.Refuse == nil {
		return nil
	}
	return r.Refuse(verb, key)
}

// ErrText is the text of an error, or "done".
func ErrText(err error) string {
	if err == nil {
		return "done"
	}
	return err.Error()
}
