// Package transport connects a session to servers: connections, messages and hints.
package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaseway/leaseway/src/go/internal/wire"
)

const (
	// connectTimeout includes the TLS handshake.
	connectTimeout = 3 * time.Second

	// keepAliveInterval and keepAliveTimeout detect hosts that vanished while a call or a stream is open.
	keepAliveInterval = 10 * time.Second
	keepAliveTimeout  = 5 * time.Second

	// bufferBytes is the size of the buffers of a connection.
	bufferBytes = 4096
)

// Dialer makes connections.
type Dialer struct {
	// TLS is nil for connections without TLS.
	TLS *tls.Config
	// Token is sent with every request. It may be nil.
	Token *Token
	// ClearToken allows the token to be sent without TLS to other machines.
	ClearToken bool
	// DialContext makes the TCP connections. It may be nil.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	UserAgent   string
}

// Conn is a connection to a server. It connects when it is first used.
type Conn struct {
	// Address is the server, as HOST:PORT.
	Address string
	grpc    *grpc.ClientConn
}

// Check returns an error if a connection to a server would send the token in clear text to another machine.
func (d *Dialer) Check(address string) error {
	if d.Token == nil || d.TLS != nil || d.ClearToken || IsLoopback(address) {
		return nil
	}
	return fmt.Errorf("refusing to send the token to %s without TLS: use TLS, or allow clear-text tokens if a tunnel "+
		"protects the connection", address)
}

// Connect returns a connection to a server. The error is that of Check.
func (d *Dialer) Connect(address string) (*Conn, error) {
	if err := d.Check(address); err != nil {
		return nil, err
	}
	security := insecure.NewCredentials()
	if d.TLS != nil {
		security = credentials.NewTLS(d.TLS)
	}
	dial := d.DialContext
	if dial == nil {
		dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dial(ctx, "tcp", address)
		}),
		// The session decides when to retry, on another connection. One that is kept for the stream of hints connects again
		// by itself.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 15 * time.Second},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAliveInterval, Timeout: keepAliveTimeout}),
		// Messages are small, and a process may have thousands of clients.
		grpc.WithReadBufferSize(bufferBytes),
		grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithSharedWriteBuffer(true),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent(d.UserAgent),
	}
	if d.Token != nil {
		options = append(options, grpc.WithPerRPCCredentials(tokenCredentials{d.Token}))
	}
	// The dialer resolves the name with every attempt, so changes of DNS are noticed.
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		return nil, err
	}
	return &Conn{address, conn}, nil
}

// Close closes the connection. Calls in flight fail.
func (c *Conn) Close() { _ = c.grpc.Close() }

const (
	getCapacity     = "/doorman.Capacity/GetCapacity"
	releaseCapacity = "/doorman.Capacity/ReleaseCapacity"
	discovery       = "/doorman.Capacity/Discovery"
	watch           = "/leaseway.push.v1.Push/Watch"
	renew           = "/leaseway.session.v1.Session/Renew"
)

// GetCapacity asks for leases.
func (c *Conn) GetCapacity(ctx context.Context, request *wire.GetCapacityRequest) (*wire.GetCapacityResponse, error) {
	response := new(wire.GetCapacityResponse)
	return response, c.grpc.Invoke(ctx, getCapacity, request, response)
}

// ReleaseCapacity releases leases.
func (c *Conn) ReleaseCapacity(ctx context.Context, request *wire.ReleaseCapacityRequest) (*wire.ReleaseCapacityResponse, error) {
	response := new(wire.ReleaseCapacityResponse)
	return response, c.grpc.Invoke(ctx, releaseCapacity, request, response)
}

// Discover returns the servers of the node, and whether this one accepts streams of renewals. There are no servers if the
// node has a single one, or speaks only the original protocol.
func (c *Conn) Discover(ctx context.Context) (servers []string, renewsByStream bool, err error) {
	response := new(wire.DiscoveryResponse)
	if err := c.grpc.Invoke(ctx, discovery, &wire.DiscoveryRequest{}, response); err != nil {
		return nil, false, err
	}
	return peers(response), response.GetRenewsByStream(), nil
}

// peers returns the peers in an answer, without malformed addresses.
func peers(response *wire.DiscoveryResponse) []string {
	var addresses []string
	for _, peer := range response.GetEndpoint() {
		if endpoint, err := ParseEndpoint(peer); err == nil && endpoint.Scheme != TLS {
			addresses = append(addresses, endpoint.Address)
		}
	}
	return addresses
}

// watchHints opens the stream of hints for a client. receive is called for each hint.
func (c *Conn) watchHints(ctx context.Context, client string, receive func(*wire.Hint)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.grpc.NewStream(ctx, &grpc.StreamDesc{StreamName: "Watch", ServerStreams: true}, watch)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&wire.WatchRequest{ClientId: proto.String(client)}); err != nil {
		return stream.RecvMsg(new(wire.Hint))
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		hint := new(wire.Hint)
		if err := stream.RecvMsg(hint); err != nil {
			return err
		}
		receive(hint)
	}
}

// IsBroken returns whether a failed request means that its connection should not be used again.
func IsBroken(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown:
		return true
	}
	return false
}
