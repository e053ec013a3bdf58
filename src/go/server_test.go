package leaseway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leaseway/leaseway/src/go"
)

// binary returns the server binary that LEASEWAY_BIN names. Tests that need it are skipped if the variable is not set,
// unless the build tag e2e is.
func binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("LEASEWAY_BIN")
	if path == "" {
		if binaryRequired {
			t.Fatal("LEASEWAY_BIN is not set: it names the leaseway binary")
		}
		t.Skip("LEASEWAY_BIN is not set: it names the leaseway binary")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("LEASEWAY_BIN: %v", err)
	}
	return path
}

// template is a template of a resource without learning mode.
type template struct {
	glob     string
	capacity float64
	lease    int
	refresh  int
	kind     string
	safe     string
}

func (t template) String() string {
	if t.kind == "" {
		t.kind = "FAIR_SHARE"
	}
	safe := ""
	if t.safe != "" {
		safe = "\n  safe_capacity: " + t.safe
	}
	return fmt.Sprintf(`- identifier_glob: %q
  capacity: %g%s
  algorithm:
    kind: %s
    lease_length: %d
    refresh_interval: %d
    learning_mode_duration: 0
`, t.glob, t.capacity, safe, t.kind, t.lease, t.refresh)
}

// server is a running `leaseway serve`.
type server struct {
	address string
	command *exec.Cmd
}

var servingOn = regexp.MustCompile(`gRPC on (\S+?),`)

// serve starts a server, which ends with the test.
func serve(t testing.TB, templates []template, flags ...string) *server {
	t.Helper()
	text := "resources:\n"
	for _, template := range append(templates, template{glob: "*", capacity: 100, lease: 60, refresh: 1}) {
		text += template.String()
	}
	return serveText(t, text, flags...)
}

// serveText starts a server with this configuration.
func serveText(t testing.TB, text string, flags ...string) *server {
	t.Helper()
	config := filepath.Join(t.TempDir(), "resources.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags = append([]string{"serve", "--config", config, "--http", "127.0.0.1:0", "--threads", "1"}, flags...)
	if !strings.Contains(strings.Join(flags, " "), "--listen") {
		flags = append(flags, "--listen", "127.0.0.1:0")
	}
	return start(t, flags...)
}

func start(t testing.TB, flags ...string) *server {
	t.Helper()
	command := exec.Command(binary(t), flags...)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	command.Stderr = &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{command: command}
	t.Cleanup(s.kill)
	line, _ := bufio.NewReader(output).ReadString('\n')
	found := servingOn.FindStringSubmatch(line)
	if found == nil {
		s.kill()
		t.Fatalf("the server wrote %q, and logged:\n%s", line, &log)
	}
	s.address = found[1]
	go func() { _, _ = io.Copy(io.Discard, output) }()
	return s
}

func (s *server) kill() {
	_ = s.command.Process.Kill()
	_ = s.command.Wait()
}

// dial returns a client that is closed with the test.
func dial(t testing.TB, endpoint string, options ...leaseway.Option) *leaseway.Client {
	t.Helper()
	quiet := leaseway.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	client, err := leaseway.Dial(endpoint, append([]leaseway.Option{quiet}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func ready(t testing.TB, client *leaseway.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := client.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

// must returns a value, and panics if there is an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// eventually waits until a condition is true.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	// Longer than leases, which count until they end if masters were lost in a row.
	end := time.Now().Add(time.Minute)
	for !condition() {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// freeAddress returns an address that nobody listens on. Its port lies below those that the system gives to outgoing
// connections, so none takes it before the server listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if listener, err := net.Listen("tcp", address); err == nil {
			_ = listener.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// run runs a command of the binary.
func run(t testing.TB, dir string, arguments ...string) {
	t.Helper()
	command := exec.Command(binary(t), arguments...)
	command.Dir = dir
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", arguments, err, output)
	}
}

// startPeers starts a node of three peers.
func startPeers(t testing.TB, templates []template) []*server {
	t.Helper()
	var peers, named []string
	for n := range 3 {
		peers = append(peers, freeAddress(t))
		named = append(named, fmt.Sprintf("p%d=%s", n, peers[n]))
	}
	servers := make([]*server, len(peers))
	for n := range peers {
		servers[n] = serve(t, templates, "--listen", freeAddress(t), "--data", t.TempDir(), "--admin", "127.0.0.1:0",
			"--peers", strings.Join(named, ","), "--id", fmt.Sprintf("p%d", n), "--bootstrap")
	}
	return servers
}
