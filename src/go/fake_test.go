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
	f := &fake{address: listener.Addr().String(), capacity: capacity, lengthMs: 60_000}
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
		answer.Response = append(answer.Response, &wire.ResourceResponse{
			ResourceId: resource.ResourceId,
			Gets: &wire.Lease{
				ExpiryTime: proto.Int64(1), RefreshInterval: proto.Int64(1), Capacity: proto.Float64(f.capacity),
				Token: proto.Uint64(uint64(f.asked)), RemainingMs: proto.Int64(f.lengthMs),
			},
			Budget: f.budget,
		})
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
