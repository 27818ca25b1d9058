package example_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/client/clientset/versioned/fake"
	"github.com/sonde-operator/sonde/client/example"
)

func Example() {
	// A program uses versioned.NewForConfig(config) here.
	client := fake.NewClientset()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	if err := example.Install(ctx, client, "platform", "collector", "acme"); err != nil {
		fmt.Println(err)
		return
	}
	operate(ctx, client, sondev1.ConditionReady, "Released", "")
	collector, err := example.WaitReady(ctx, client, "platform", "collector")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(collector.ReleaseName(), "in", collector.ReleaseNamespace(), "is ready")
	// Output: collector-prod in acme is ready
}

// operate sets one condition, as the operator would.
func operate(ctx context.Context, client *fake.Clientset, condition, reason, message string) {
	collectors := client.MonitoringV1alpha1().Collectors("platform")
	c, err := collectors.Get(ctx, "collector", metav1.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	c.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: reason, Message: message}}
	if _, err := collectors.UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
		log.Fatal(err)
	}
}

func TestStalled(t *testing.T) {
	client := fake.NewClientset()
	if err := example.Install(t.Context(), client, "platform", "collector", "acme"); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(50 * time.Millisecond) // WaitReady has to see a change, not only the first state.
		operate(t.Context(), client, sondev1.ConditionStalled, "NamespaceNotOpened", "open it")
	}()
	_, err := example.WaitReady(t.Context(), client, "platform", "collector")
	if err == nil || !strings.Contains(err.Error(), "NamespaceNotOpened: open it") {
		t.Errorf("error %v, want the reason and the message", err)
	}
}

func TestNotReadyInTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := example.WaitReady(ctx, fake.NewClientset(), "platform", "missing"); err == nil || ctx.Err() == nil {
		t.Errorf("error %v before the context ended", err)
	}
}
