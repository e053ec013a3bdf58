// An xDS control plane made of go-control-plane: `controlplane ADDRESS ads|rls NODE [CERTIFICATE KEY]`. It prints its
// address, and takes a snapshot for the node from each line of standard input:
//
//	{"version": "1", "configs": [{"name": "shop", "domain": "shop", "descriptors": []}]}
//
// It prints a line of JSON for each request of a subscriber.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/ratelimit/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"
)

func main() {
	address, kind, node := os.Args[1], os.Args[2], os.Args[3]
	listener, err := net.Listen("tcp", address)
	check(err)
	var options []grpc.ServerOption
	if len(os.Args) > 4 {
		tls, err := credentials.NewServerTLSFromFile(os.Args[4], os.Args[5])
		check(err)
		options = append(options, grpc.Creds(tls))
	}
	snapshots := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	callbacks := server.CallbackFuncs{
		StreamRequestFunc: func(_ int64, request *discovery.DiscoveryRequest) error {
			return tell(map[string]any{
				"node":    request.GetNode().GetId(),
				"version": request.GetVersionInfo(),
				"nonce":   request.GetResponseNonce(),
				"error":   request.GetErrorDetail().GetMessage(),
			})
		},
		StreamDeltaRequestFunc: func(_ int64, request *discovery.DeltaDiscoveryRequest) error {
			return tell(map[string]any{
				"delta": true,
				"node":  request.GetNode().GetId(),
				"nonce": request.GetResponseNonce(),
				"known": request.GetInitialResourceVersions(),
				"error": request.GetErrorDetail().GetMessage(),
			})
		},
	}
	plane := server.NewServer(context.Background(), snapshots, callbacks)
	grpcServer := grpc.NewServer(options...)
	switch kind {
	case "ads":
		discovery.RegisterAggregatedDiscoveryServiceServer(grpcServer, plane)
	case "rls":
		service.RegisterRateLimitConfigDiscoveryServiceServer(grpcServer, plane)
	default:
		log.Fatalf("unknown service %q: expected ads or rls", kind)
	}
	go func() { check(grpcServer.Serve(listener)) }()
	fmt.Println(listener.Addr())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		snapshot, err := read(lines.Bytes())
		check(err)
		check(snapshots.SetSnapshot(context.Background(), node, snapshot))
	}
	check(lines.Err())
}

func tell(request map[string]any) error {
	line, err := json.Marshal(request)
	fmt.Println(string(line))
	return err
}

func read(line []byte) (*cache.Snapshot, error) {
	var stated struct {
		Version string
		Configs []json.RawMessage
	}
	if err := json.Unmarshal(line, &stated); err != nil {
		return nil, err
	}
	var resources []types.Resource
	for _, text := range stated.Configs {
		read := new(config.RateLimitConfig)
		if err := protojson.Unmarshal(text, read); err != nil {
			return nil, err
		}
		resources = append(resources, read)
	}
	return cache.NewSnapshot(stated.Version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: resources})
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
