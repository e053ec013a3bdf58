//go:build e2e

package leasewayotel

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	leaseway "github.com/leaseway/leaseway/src/go"
)

// serve starts the server that LEASEWAY_BIN names, with a capacity of 100 for each resource, and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	command := exec.Command(os.Getenv("LEASEWAY_BIN"), "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("LEASEWAY_BIN: %v", err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	line, _ := bufio.NewReader(output).ReadString('\n')
	found := regexp.MustCompile(`gRPC on (\S+?),`).FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("the server wrote %q", line)
	}
	go func() { _, _ = io.Copy(io.Discard, output) }()
	return found[1]
}

func TestTheLeaseOfAServerIsExported(t *testing.T) {
	client, err := leaseway.Dial(serve(t))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	reader := sdk.NewManualReader()
	if _, err := Observe(client, WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))); err != nil {
		t.Fatal(err)
	}
	jobs, err := client.Gauge("jobs", leaseway.WithWants(3))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	release, err := jobs.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	values := collect(t, reader)
	for name, want := range map[string]float64{
		"doorman_client_request_errors":                          0,
		"leaseway_client_capacity{resource=jobs}":                3,
		"leaseway_client_wants{resource=jobs}":                   3,
		"leaseway_client_permits_requested_total{resource=jobs}": 1,
		"leaseway_client_permits_taken{resource=jobs}":           1,
		"leaseway_client_in_use{resource=jobs}":                  1,
	} {
		if found, has := values[name]; !has || found != want {
			t.Errorf("%s is %v (exported: %v), expected %v", name, found, has, want)
		}
	}
	if values["doorman_client_requests"] < 1 || values["leaseway_client_lease_seconds{resource=jobs}"] <= 0 {
		t.Errorf("no request, or no lease: %v", values)
	}
}
