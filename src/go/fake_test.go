package leaseway_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaseway/leaseway/src/go/internal/wire"
)

// fake is a server that grants a capacity to everybody, and answers as it is told.
type fake struct {
	address string
	// stop ends the server.
	stop func()

	mu       sync.Mutex
	capacity float64
	lengthMs int64
	// budget is set if its resources are budgets.
	budget *wire.BudgetLease
	// refresh is the refresh interval in seconds.
	refresh int64
	// token is the last one.
	token uint64
	// asked counts the requests for capacity, and last is the last one.
	asked    int
	last     *wire.GetCapacityRequest
	released []string
	// spent has the last reports of budgets, as long as released.
	spent []*wire.Spent
	// silent: requests for capacity are not answered. unanswered counts them.
	silent     bool
	unanswered int
	// offersStreams: it says that it accepts streams of renewals, as behind a proxy that does not pass them.
	offersStreams bool
	// takesStreams: it accepts streams of renewals. renewals counts their messages.
	takesStreams bool
	renewals     int
	// hints are sent to those who watch, if it is not nil. watchers counts them.
	hints    chan *wire.Hint
	watchers int
	// redirects: it is not the master. It names master, which may be empty.
	redirects bool
	master    string
	// peers are those that it names, and discoveryFailures is how often that fails before.
	peers             []string
	discoveryFailures int
}

func startFake(t testing.TB, capacity float64) *fake {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{address: listener.Addr().String(), capacity: capacity, lengthMs: 60_000, refresh: 1}
	server := grpc.NewServer()
	f.stop = server.Stop
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "doorman.Capacity",
		Methods: []grpc.MethodDesc{
			{MethodName: "GetCapacity", Handler: unary(f.getCapacity)},
			{MethodName: "ReleaseCapacity", Handler: unary(f.releaseCapacity)},
			{MethodName: "Discovery", Handler: unary(f.discovery)},
		},
	}, nil)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "leaseway.push.v1.Push",
		Streams:     []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, Handler: f.watch}},
	}, nil)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "leaseway.session.v1.Session",
		Streams:     []grpc.StreamDesc{{StreamName: "Renew", ServerStreams: true, ClientStreams: true, Handler: f.renew}},
	}, nil)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return f
}

func unary[Request, Response any](answer func(context.Context, *Request) (*Response, error)) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := new(Request)
		if err := decode(request); err != nil {
			return nil, err
		}
		return answer(ctx, request)
	}
}

func (f *fake) getCapacity(ctx context.Context, request *wire.GetCapacityRequest) (*wire.GetCapacityResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent {
		f.unanswered++
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return nil, ctx.Err()
	}
	f.asked++
	f.last = request
	if f.redirects {
		return &wire.GetCapacityResponse{Mastership: f.mastership()}, nil
	}
	answer := new(wire.GetCapacityResponse)
	for _, resource := range request.GetResource() {
		answer.Response = append(answer.Response, f.grant(resource.ResourceId))
	}
	return answer, nil
}

func (f *fake) grant(resource *string) *wire.ResourceResponse {
	f.token++
	return &wire.ResourceResponse{
		ResourceId: resource,
		Gets: &wire.Lease{
			ExpiryTime: proto.Int64(1), RefreshInterval: proto.Int64(f.refresh), Capacity: proto.Float64(f.capacity),
			Token: proto.Uint64(f.token), RemainingMs: proto.Int64(f.lengthMs),
		},
		Budget: f.budget,
	}
}

func (f *fake) watch(_ any, stream grpc.ServerStream) error {
	f.mu.Lock()
	hints := f.hints
	f.watchers++
	f.mu.Unlock()
	if hints == nil {
		return status.Error(codes.Unimplemented, "no hints")
	}
	for hint := new(wire.Hint); ; {
		if err := stream.SendMsg(hint); err != nil {
			return err
		}
		select {
		case hint = <-hints:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (f *fake) renew(_ any, stream grpc.ServerStream) error {
	for {
		request := new(wire.RenewRequest)
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		answer, err := f.renewed(request)
		if err != nil {
			return err
		}
		if err := stream.SendMsg(answer); err != nil {
			return err
		}
	}
}

func (f *fake) renewed(request *wire.RenewRequest) (*wire.RenewResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.takesStreams {
		return nil, status.Error(codes.Unimplemented, "no streams")
	}
	f.renewals++
	answer := &wire.RenewResponse{Sequence: request.GetSequence(), UnixTime: 1}
	for _, entry := range request.GetEntry() {
		answer.Grant = append(answer.Grant, &wire.Grant{Index: entry.GetIndex(), Response: f.grant(nil)})
	}
	return answer, nil
}

func (f *fake) releaseCapacity(_ context.Context, request *wire.ReleaseCapacityRequest) (*wire.ReleaseCapacityResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.redirects {
		return &wire.ReleaseCapacityResponse{Mastership: f.mastership()}, nil
	}
	f.released = append(f.released, request.GetResourceId()...)
	f.spent = append(f.spent, request.GetSpent()...)
	return new(wire.ReleaseCapacityResponse), nil
}

func (f *fake) discovery(context.Context, *wire.DiscoveryRequest) (*wire.DiscoveryResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.discoveryFailures > 0 {
		f.discoveryFailures--
		return nil, status.Error(codes.Internal, "not now")
	}
	return &wire.DiscoveryResponse{
		IsMaster: proto.Bool(true), Endpoint: f.peers, RenewsByStream: proto.Bool(f.offersStreams),
	}, nil
}

func (f *fake) mastership() *wire.Mastership {
	if f.master == "" {
		return new(wire.Mastership)
	}
	return &wire.Mastership{MasterAddress: proto.String(f.master)}
}

// set changes the fake.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}
