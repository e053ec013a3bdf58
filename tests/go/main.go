// A TLS client that shares no code with ours: grpc-go, Go's TLS, and code generated from the interface of 2016. It gets
// a lease, refreshes it with half the wants, releases it, and prints a line for each.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/ioutil"
	"os"
	"time"

	pb "leaseway/doorman"

	"github.com/golang/protobuf/proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

const usage = "ADDRESS CLIENT RESOURCE WANTS CA [CERTIFICATE KEY]"

func main() {
	if len(os.Args) != 6 && len(os.Args) != 8 {
		fail(fmt.Errorf("expected %s", usage))
	}
	address, client, resource, ca := os.Args[1], os.Args[2], os.Args[3], os.Args[5]
	var wants float64
	if _, err := fmt.Sscan(os.Args[4], &wants); err != nil {
		fail(err)
	}
	config, err := configure(ca, os.Args[6:])
	if err != nil {
		fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := grpc.DialContext(ctx, address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		fail(err)
	}
	defer conn.Close()
	doorman := pb.NewCapacityClient(conn)

	entry := &pb.ResourceRequest{ResourceId: &resource, Priority: proto.Int64(0), Wants: &wants}
	request := &pb.GetCapacityRequest{ClientId: &client, Resource: []*pb.ResourceRequest{entry}}
	for _, what := range []string{"asked", "refreshed"} {
		answer, err := doorman.GetCapacity(ctx, request)
		refused(err)
		if len(answer.Response) != 1 {
			fail(fmt.Errorf("%s: %v", what, answer))
		}
		lease := answer.Response[0].Gets
		fmt.Println(what, lease.GetCapacity())
		// Echoes our unknown fields, too, because Go keeps them.
		entry.Has, wants = lease, wants/2
	}
	release := &pb.ReleaseCapacityRequest{ClientId: &client, ResourceId: []string{resource}}
	_, err = doorman.ReleaseCapacity(ctx, release)
	refused(err)
	fmt.Println("released")
}

func configure(ca string, own []string) (*tls.Config, error) {
	pem, err := ioutil.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", ca)
	}
	if len(own) == 2 {
		certificate, err := tls.LoadX509KeyPair(own[0], own[1])
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// Exits with the gRPC code and message if the call failed.
func refused(err error) {
	if err != nil {
		fmt.Println("failed", status.Code(err), status.Convert(err).Message())
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
