// Part of `aigw run` in the tests, copied into its source by `tests/go/gateways`: in the file that LEASEWAY_QUOTAS names it
// reads QuotaPolicies, as the controller in Kubernetes would, and follows its changes.
package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	aigv1a1 "github.com/envoyproxy/ai-gateway/api/v1alpha1"
	"github.com/envoyproxy/ai-gateway/internal/controller"
	"github.com/envoyproxy/ai-gateway/internal/ratelimit/runner"
)

// storeQuotas stores the policies where the other controllers look for them.
func storeQuotas(ctx context.Context, objects client.Client) {
	text, err := os.ReadFile(os.Getenv("LEASEWAY_QUOTAS"))
	if err == nil {
		_, err = store(ctx, objects, text)
	}
	if err != nil {
		log.Fatalf("quotas: %v", err)
	}
}

// serveQuotas serves their limits over xDS.
func serveQuotas(ctx context.Context, objects client.Client) {
	path := os.Getenv("LEASEWAY_QUOTAS")
	// Envoy Gateway, which is in the same process, has the usual port.
	limits := runner.New(ctrl.Log, runner.DefaultPort+1)
	go func() {
		if err := limits.Start(ctx); err != nil {
			log.Fatalf("quotas: %v", err)
		}
	}()
	routes := make(chan event.GenericEvent)
	go func() {
		for range routes {
		}
	}()
	quotas := controller.NewQuotaPolicyController(objects, nil, ctrl.Log, limits, routes)
	var known []byte
	follow := func() {
		text, err := os.ReadFile(path)
		if err == nil && !bytes.Equal(text, known) {
			err = apply(ctx, objects, quotas, text)
		}
		if err == nil {
			known = text
		} else {
			log.Printf("quotas: %v", err)
		}
	}
	for follow(); known == nil; follow() {
		time.Sleep(100 * time.Millisecond)
	}
	go func() {
		for range time.Tick(100 * time.Millisecond) {
			follow()
		}
	}()
}

func apply(ctx context.Context, objects client.Client, quotas *controller.QuotaPolicyController, text []byte) error {
	names, err := store(ctx, objects, text)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := quotas.Reconcile(ctx, ctrl.Request{NamespacedName: name}); err != nil {
			return err
		}
	}
	return nil
}

func store(ctx context.Context, objects client.Client, text []byte) (names []types.NamespacedName, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var policy, stored aigv1a1.QuotaPolicy
		if err := decoder.Decode(&policy); errors.Is(err, io.EOF) {
			return names, nil
		} else if err != nil {
			return nil, err
		}
		name := types.NamespacedName{Namespace: policy.Namespace, Name: policy.Name}
		names = append(names, name)
		switch err := objects.Get(ctx, name, &stored); {
		case apierrors.IsNotFound(err):
			policy.UID = types.UID(policy.Name)
			if err := objects.Create(ctx, &policy); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		default:
			stored.Spec = policy.Spec
			if err := objects.Update(ctx, &stored); err != nil {
				return nil, err
			}
		}
	}
}
