package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/follow"
	"github.com/sonde-operator/sonde/internal/cli/intercept"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

const interceptExamples = `  # Every connection to port 8080 of the Deployment's Pods, to a process on this machine
  kubectl sonde intercept deploy/web -n shop --port 8080 --to 127.0.0.1:8080

  # Only one user's requests
  kubectl sonde intercept deploy/web -n shop --port 8080 --to 8080 --header x-user=alice

  # Only what begins with /api, and only GET
  kubectl sonde intercept deploy/web -n shop --port 8080 --to 8080 --path-prefix /api --method GET`

type interceptCommand struct {
	plugin  *plugin
	port    string // a number, or the name of a container's port
	request intercept.Request
}

func newIntercept(p *plugin) *cobra.Command {
	c := &interceptCommand{plugin: p}
	cmd := &cobra.Command{
		Use:   "intercept TARGET",
		Short: "Answer the requests to a port of a workload on this machine",
		Long: `Sends the connections to a port of every Pod of TARGET to a process on this machine, or only the HTTP/1 requests that match. No
Pod is changed or restarted. When the command ends, however it ends, the app answers again within seconds.

TARGET is deploy/NAME, sts/NAME, ds/NAME, pod/NAME, or the NAME of a Deployment. Interrupting (Ctrl-C) ends the intercept.
You need the ClusterRole sonde-intercept in the namespace.

Exit code: 0 the intercept has ended; 1 error; 130 interrupted twice.`,
		Example: interceptExamples,
		Args:    oneArgument("TARGET, like deploy/web"),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return rejectEmpty(cmd, "port", "to", "header", "path", "path-prefix", "path-regex", "method", "server-name", "container", "probes", "expires-after", "grace-period")
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	f, r := cmd.Flags(), &c.request
	f.StringVar(&c.port, "port", "", "Port on which the container listens (required), as a number or as the name in the Pod's spec. A Service may have another port")
	f.StringVar(&r.To, "to", "", "Address of your process: HOST:PORT, or a PORT of this machine (default the same port)")
	f.StringArrayVar(&r.Headers, "header", nil, "Only requests with this header: NAME=VALUE. Repeat it for more. Whoever may read InterceptRequests sees the value")
	f.StringVar(&r.Path, "path", "", "Only requests to this path, without the query")
	f.StringVar(&r.PathPrefix, "path-prefix", "", "Only requests to paths that begin with this")
	f.StringVar(&r.PathRegex, "path-regex", "", "Only requests to paths that match this regular expression (RE2) as a whole")
	f.StringVar(&r.Method, "method", "", "Only requests with this method, like GET")
	f.StringVar(&r.ServerName, "server-name", "", "Only TLS connections that ask for this name (SNI), still encrypted")
	f.BoolVar(&r.Any, "any", false, "One of the conditions is enough")
	f.StringVar(&r.Container, "container", "", "Container that has the port; it must exist")
	f.StringVar(&r.Probes, "probes", "", "Who answers the kubelet's TCP probes if you set no condition: app or client (default app). HTTP and gRPC probes always go to the app")
	f.StringVar(&r.ExpiresAfter, "expires-after", "", "End the intercept after this time, at most 24h (default 8h)")
	f.StringVar(&r.GracePeriod, "grace-period", "", "How long a lost connection may take to come back (default 10s). The app answers meanwhile")
	f.StringVar(&r.TargetNamespace, "target-namespace", "", "Namespace of TARGET, if it differs from the namespace of the InterceptRequest; only allowed in a hub namespace")
	f.StringVar(&r.Name, "name", "", "Name of the InterceptRequest (default generated from TARGET)")
	cmd.AddCommand(newInterceptDown(p))
	return cmd
}

func (c *interceptCommand) run(ctx context.Context, target string) error {
	var err error
	if c.request.Target, err = capture.ParseTarget(target); err != nil {
		return err
	}
	conn, err := c.plugin.connect()
	if err != nil {
		return err
	}
	c.request.Namespace = conn.namespace
	if c.request.Port, err = c.portNumber(ctx, conn); err != nil {
		return err
	}
	c.request.To = cmp.Or(c.request.To, fmt.Sprint(c.request.Port))
	identity, err := tunnel.NewIdentity()
	if err != nil {
		return err
	}
	object, err := c.request.Build(identity.Key)
	if err != nil {
		return err
	}
	if name := c.request.RepeatedHeader(); name != "" {
		fmt.Fprintf(c.plugin.streams.ErrOut, "Warning: all conditions must hold, so a request matches only if it has the header %s more than once. For requests with one of the values, run a command for each value\n",
			table.Printable(name))
	}
	if err := mayEndIntercepts(ctx, conn, object.Name, object.Spec.TargetNamespace != ""); err != nil {
		return err
	}
	// The signal would end the plugin before the request is deleted. watched finds a broken output: the signal comes for connections, too.
	signal.Ignore(syscall.SIGPIPE)
	interrupted, address := c.plugin.interrupts.claim(), intercept.Address(object)
	switch err := c.create(ctx, conn, object, identity.Key); {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("InterceptRequest %s exists, perhaps from a command that was killed: choose another --name, or end it first:\n  %s",
			object.Name, c.plugin.commandLine("down "+object.Name, object.Namespace))
	case err != nil:
		return &targetError{err, cmp.Or(c.request.TargetNamespace, conn.namespace)}
	}
	i := &runningIntercept{plugin: c.plugin, conn: conn, identity: identity, object: object, interrupted: interrupted}
	if got := intercept.Address(object); got != address {
		err := fmt.Errorf("the cluster changed the address of your process from %s to %s, which the plugin does not connect to: ask your cluster's admins for the webhook that changes InterceptRequests", address, got)
		return errors.Join(err, i.remove(ctx, false))
	}
	return i.run(ctx)
}

// runningIntercept is an InterceptRequest of this process.
type runningIntercept struct {
	plugin      *plugin
	conn        *connection
	identity    *tunnel.Identity
	object      *v1alpha1.InterceptRequest
	interrupted <-chan struct{}

	state   *intercept.State
	display live.Display
	local   *intercept.Local
}

// watched calls onUnread when the reader of the output has ended, as head does.
type watched struct {
	io.Writer
	onUnread func()
}

// Write implements io.Writer.
func (w watched) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if follow.ReaderEnded(err) {
		w.onUnread()
	}
	return n, err //nolint:wrapcheck // the writer's own
}

// Reasons to end an intercept, other than an error.
var (
	errStopped = errors.New("stopped by the user")
	errDeleted = errors.New("the InterceptRequest was deleted")
	errExpired = errors.New("the intercept has expired")
)

// run follows the intercept until it ends, and then deletes its InterceptRequest.
func (i *runningIntercept) run(ctx context.Context) error {
	p := i.plugin
	i.state = intercept.NewState(i.object, p.clock.Now())
	i.display = p.display(watched{p.streams.ErrOut, func() { p.interrupts.deliver() }})
	i.local = &intercept.Local{
		Route: string(i.object.UID), Address: intercept.Address(i.object), OnReport: i.report, OnDial: i.dialed, TrafficOf: i.state.TrafficOf,
		OnCut: i.state.AddCut,
	}
	var parts sync.WaitGroup
	err := i.follow(ctx, &parts)
	i.state.SetEnding("Ending")
	parts.Go(i.show)
	derr := i.remove(ctx, errors.Is(err, errDeleted))
	parts.Wait() // it blocks while the output does
	i.state.SetEnded(endOf(err, derr))
	i.show()
	i.display.Close()
	if derr != nil && ctx.Err() != nil { // after a second interrupt, Main prints no error
		fmt.Fprintln(p.streams.ErrOut, describe(derr))
	}
	switch {
	case errors.Is(err, errStopped), errors.Is(err, errDeleted), errors.Is(err, errExpired):
		return derr
	case err != nil && derr != nil: // of two errors, only the API server's would be printed
		fmt.Fprintln(p.streams.ErrOut, describe(err))
		return derr
	}
	return err
}

// dialed keeps whether the developer's process took a connection.
func (i *runningIntercept) dialed(err error) {
	before := i.state.SetRefused(err)
	switch {
	case i.plugin.terminal != nil: // the screen has a note while it does not answer
	case err != nil && !before:
		i.display.PrintLine("Warning: " + intercept.Unanswered(err))
	case err == nil && before:
		i.display.PrintLine(intercept.Address(i.object) + " answers now")
	}
}

// appAnswers says who answers when an intercept has ended. Another intercept of the port may match the same requests.
const appAnswers = "the app answers, unless another intercept does"

// endOf returns what the last screen says of an intercept that ended with err, and was deleted with derr.
func endOf(err, derr error) (status, message string) {
	switch {
	case derr != nil:
		return "Not deleted: " + appAnswers, ""
	case errors.Is(err, errExpired):
		return "Ended: " + err.Error(), "Run the command again to go on; meanwhile " + appAnswers
	case errors.Is(err, errDeleted):
		return "Ended: " + err.Error(), "Now " + appAnswers
	case errors.Is(err, errStopped), errors.Is(err, errInterrupted):
		return "Ended: " + appAnswers, ""
	}
	return "Failed: " + appAnswers, "" // the error is printed below
}

func (i *runningIntercept) show() {
	i.display.Show(i.state.View(i.plugin.clock.Now(), i.plugin.terminal != nil))
}

// maxLines of requests that are printed for one Report where there is no terminal.
const maxLines = 10

func (i *runningIntercept) report(r tunnel.Report) {
	more := i.state.Add(&r)
	if i.plugin.terminal != nil {
		return
	}
	if n := len(r.Requests) - maxLines; n > 0 {
		more += uint64(n)
		r.Requests = r.Requests[n:]
	}
	if more > 0 {
		i.display.PrintLine(strconv.FormatUint(more, 10) + " more since the last lines, not shown")
	}
	for _, request := range r.Requests {
		i.display.PrintLine(intercept.RequestLine(request))
	}
}

// follow keeps the tunnel and the display until the intercept ends. It returns why. It does not wait for the parts, because those that
// print block while the output does.
func (i *runningIntercept) follow(ctx context.Context, parts *sync.WaitGroup) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	ready := make(chan struct{})
	parts.Go(func() { i.watch(ctx, end, sync.OnceFunc(func() { close(ready) })) })
	parts.Go(func() {
		select {
		case <-ready:
			if err := i.keepTunnel(ctx); err != nil {
				end(err)
			}
		case <-ctx.Done():
		}
	})
	parts.Go(func() { i.local.Relieve(ctx) })
	parts.Go(func() { i.keepShowing(ctx) })
	parts.Go(func() { i.keepChecking(ctx) })
	select {
	case <-i.interrupted:
		return errStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (i *runningIntercept) keepShowing(ctx context.Context) {
	i.show()
	i.every(ctx, refresh, i.show)
}

// every calls do once in each interval, until ctx ends.
func (i *runningIntercept) every(ctx context.Context, interval time.Duration, do func()) {
	ticker := i.plugin.clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			do()
		}
	}
}

// checkInterval is how often the plugin tries to connect to a process that did not answer.
const checkInterval = 2 * time.Second

// keepChecking notices when a process listens that did not: no request may come for long. A try may take seconds, in which the screen
// must go on.
func (i *runningIntercept) keepChecking(ctx context.Context) {
	if err := i.local.Check(ctx); err != nil && ctx.Err() == nil {
		i.dialed(err)
	}
	i.every(ctx, checkInterval, func() {
		if i.state.Refused() && i.local.Check(ctx) == nil {
			i.dialed(nil)
		}
	})
}

func (i *runningIntercept) keepTunnel(ctx context.Context) error {
	dialer, err := intercept.NewDialer(i.conn.config, cmp.Or(i.state.StowawayNamespace(), i.plugin.operatorNamespace))
	if err != nil {
		return err
	}
	t := &intercept.Tunnel{
		Dial: func(ctx context.Context, key tunnel.PublicKey) (net.Conn, error) {
			return dialer.Dial(ctx, i.identity, key)
		},
		Key: i.state.StowawayKey, Handler: i.local.Handler(), OnChange: i.state.SetTunnel,
	}
	return t.Run(ctx)
}

// watch reads the InterceptRequest until it has ended. It calls ready when Stowaway's key is known.
func (i *runningIntercept) watch(ctx context.Context, end context.CancelCauseFunc, ready func()) {
	said, refusals := map[string]bool{}, 0
	var served gone.Kind
	for ctx.Err() == nil {
		read, err := i.watchOnce(ctx, end, ready)
		connected := i.state.Connected()
		switch {
		case read || connected: // a connected intercept goes on
			served = gone.Kind{}
		case served.Note(err, i.plugin.clock.Now()): // it may still exist, so the end tries to delete it
			end(errors.New("this machine is not connected, and for 30 s the API server has not served InterceptRequests"))
		}
		if err == nil {
			clear(said)
		} else if ctx.Err() == nil {
			i.sayUnread(said, err, connected)
		}
		if !read && !connected && apierrors.IsForbidden(err) {
			refusals++
		} else {
			refusals = 0
		}
		if refusals == intercept.MaxRefusals { // nothing would ever tell the end
			end(fmt.Errorf("this machine is not connected, and you may no longer read the InterceptRequest: %s", clause(err)))
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// localPort is what differs between two errors of connections.
var localPort = regexp.MustCompile(`:[0-9]+->`)

// sayUnread prints why the InterceptRequest cannot be read, if it was not said since that was last possible.
func (i *runningIntercept) sayUnread(said map[string]bool, err error, connected bool) {
	line := "Reading the InterceptRequest failed, the intercept goes on: " + clause(err)
	if !connected {
		line = "Reading the InterceptRequest failed. This machine is not connected, so the app answers: " + clause(err)
	}
	if same := localPort.ReplaceAllString(line, "->"); !said[same] {
		said[same] = true
		i.display.PrintLine(line)
	}
}

// watchOnce reads the InterceptRequest, and then its changes. It reports whether the first was possible.
func (i *runningIntercept) watchOnce(ctx context.Context, end context.CancelCauseFunc, ready func()) (read bool, err error) {
	key := client.ObjectKeyFromObject(i.object)
	var now v1alpha1.InterceptRequest
	err = i.conn.client.Get(ctx, key, &now)
	if gone.Is(err) { // not a 404 of a load balancer
		end(errDeleted)
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the InterceptRequest: %w", err)
	}
	i.observe(&now, end, ready)
	// From this version on, so that the watch has a deletion between the two requests.
	w, err := i.conn.client.Watch(ctx, &v1alpha1.InterceptRequestList{}, client.InNamespace(key.Namespace), &client.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name), Raw: &metav1.ListOptions{ResourceVersion: now.ResourceVersion},
	})
	if err != nil {
		return true, unlessExpired(fmt.Errorf("watch the InterceptRequest: %w", err))
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		o, ok := event.Object.(*v1alpha1.InterceptRequest)
		switch {
		case !ok:
			return true, unlessExpired(apierrors.FromObject(event.Object))
		case event.Type == "DELETED":
			end(errDeleted)
			return true, nil
		}
		i.observe(o, end, ready)
	}
	return true, nil
}

// unlessExpired returns nil if the API server has forgotten the version to watch from, as it does of an object that has not changed for
// long. The object is then read again.
func unlessExpired(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return nil
	}
	return err
}

func (i *runningIntercept) observe(o *v1alpha1.InterceptRequest, end context.CancelCauseFunc, ready func()) {
	if o.UID != i.object.UID || !o.DeletionTimestamp.IsZero() {
		end(errDeleted)
		return
	}
	i.state.SetObject(o)
	switch o.Status.Phase {
	case v1alpha1.InterceptEnded:
		end(errExpired)
	case v1alpha1.InterceptFailed:
		end(failure(o))
	case v1alpha1.InterceptPending, v1alpha1.InterceptActive, v1alpha1.InterceptLost:
	}
	if o.Status.StowawayKey != "" {
		ready()
	}
}

// failure returns the messages of the conditions that do not hold.
func failure(o *v1alpha1.InterceptRequest) error {
	var messages []string
	for _, c := range o.Status.Conditions {
		if message := c.Reason + ": " + c.Message; c.Status == "False" && !slices.Contains(messages, message) {
			messages = append(messages, message)
		}
	}
	return fmt.Errorf("the intercept has failed: %s", cmp.Or(strings.Join(messages, "; "), "the operator gives no reason"))
}

// remove deletes the InterceptRequest and waits until it is gone. The second interrupt, which ends ctx, leaves it a moment for that.
func (i *runningIntercept) remove(ctx context.Context, deleted bool) error {
	if deleted {
		return nil
	}
	interrupted := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	defer context.AfterFunc(interrupted, func() { time.AfterFunc(exitTimeout-time.Second, cancel) })()
	there, err := removeIntercept(ctx, i.conn.client, i.object)
	if err == nil {
		return nil
	}
	state, who := "may still be there", "To delete it"
	if there {
		state = "is still there"
	}
	if apierrors.IsForbidden(err) {
		who = "If you have lost your rights in the namespace, a user with the role edit can delete it"
	}
	// The text of the error, because explain would print nothing else.
	return fmt.Errorf("the InterceptRequest %s. It intercepts nothing, because this client is gone: %s\n%s:\n  %s",
		state, clause(err), who, i.plugin.commandLine("down "+i.object.Name, i.object.Namespace))
}

// removeIntercept deletes this InterceptRequest, not another one of its name, and waits until it is gone. If it fails, there says that the
// InterceptRequest was read after its deletion; otherwise that is not known.
func removeIntercept(ctx context.Context, c client.Client, o *v1alpha1.InterceptRequest) (there bool, err error) {
	uid := o.UID
	err = c.Delete(ctx, &v1alpha1.InterceptRequest{ObjectMeta: o.ObjectMeta}, client.Preconditions{UID: &uid})
	if gone.Is(err) {
		return false, nil
	}
	for {
		var now v1alpha1.InterceptRequest
		gerr := c.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, &now)
		switch {
		case gone.Is(gerr), gerr == nil && now.UID != uid:
			return false, nil
		case err != nil && !apierrors.IsConflict(err):
			return gerr == nil, err
		case gerr != nil:
			return false, gerr
		}
		if err := waitShort(ctx); err != nil {
			return true, err
		}
	}
}

func waitShort(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return errors.New("it is still there after some time")
	case <-time.After(refresh):
		return nil
	}
}
