package leaseway

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// UnaryClientInterceptor returns an interceptor whose calls wait for limiter.
func UnaryClientInterceptor(limiter Limiter) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		end, err := limiter.Begin(ctx)
		if err != nil {
			return asStatus(err)
		}
		defer end()
		return invoke(ctx, method, request, reply, conn, options...)
	}
}

// StreamClientInterceptor returns an interceptor whose streams wait for limiter. A gauge's permit is in use until the
// stream has ended: until RecvMsg returns an error or the only message, or the context of the stream ends.
func StreamClientInterceptor(limiter Limiter) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		end, err := limiter.Begin(ctx)
		if err != nil {
			return nil, asStatus(err)
		}
		end = sync.OnceFunc(end)
		// The context of the stream ends then, too, but asking for it disables gRPC's retries.
		options = append(slices.Clip(options), grpc.OnFinish(func(error) { end() }))
		stream, err := streamer(ctx, desc, conn, method, options...)
		if err != nil {
			end()
		}
		return stream, err
	}
}

// statusError is an error of a limiter with a gRPC status, as callers of gRPC expect.
type statusError struct {
	status *status.Status
	cause  error
}

func (e *statusError) Error() string              { return e.status.Err().Error() }
func (e *statusError) Unwrap() error              { return e.cause }
func (e *statusError) GRPCStatus() *status.Status { return e.status }

func asStatus(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &statusError{status.New(codes.DeadlineExceeded, "leaseway: no permit before the deadline"), err}
	case errors.Is(err, context.Canceled):
		return &statusError{status.New(codes.Canceled, "leaseway: cancelled while waiting for a permit"), err}
	}
	return &statusError{status.New(codes.Unavailable, err.Error()), err}
}
