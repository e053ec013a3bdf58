package leaseway

import (
	"context"
	"errors"
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
// stream has ended: until RecvMsg returns an error, or the context of the stream ends.
func StreamClientInterceptor(limiter Limiter) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		end, err := limiter.Begin(ctx)
		if err != nil {
			return nil, asStatus(err)
		}
		stream, err := streamer(ctx, desc, conn, method, options...)
		if err != nil {
			end()
			return nil, err
		}
		limited := &limitedClientStream{stream, sync.OnceFunc(end), !desc.ServerStreams}
		context.AfterFunc(stream.Context(), limited.end)
		return limited, nil
	}
}

type limitedClientStream struct {
	grpc.ClientStream
	end func()
	// hasSingleReply: the stream ends with its first message.
	hasSingleReply bool
}

func (s *limitedClientStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err != nil || s.hasSingleReply {
		s.end()
	}
	return err
}

// asStatus turns an error of a limiter into a gRPC status, as callers of gRPC expect.
func asStatus(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "leaseway: no permit before the deadline")
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "leaseway: cancelled while waiting for a permit")
	}
	return status.Error(codes.Unavailable, err.Error())
}
