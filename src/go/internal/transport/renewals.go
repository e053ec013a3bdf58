package transport

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaseway/leaseway/src/go/internal/session"
	"github.com/leaseway/leaseway/src/go/internal/wire"
)

// ErrStreamEnded says that the server has ended a stream of renewals.
var ErrStreamEnded = status.Error(codes.Unavailable, "the stream of renewals has ended")

// Renewals is a stream of renewals. One message is in flight at a time.
type Renewals struct {
	// Number is its number in the session.
	Number uint64
	stream grpc.ClientStream
	cancel context.CancelFunc
}

// OpenRenewals opens a stream of renewals, unless the context ends before. Afterwards it lasts until it is closed.
func (c *Conn) OpenRenewals(opening context.Context, number uint64) (*Renewals, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer context.AfterFunc(opening, cancel)()
	stream, err := c.grpc.NewStream(ctx, &grpc.StreamDesc{StreamName: "Renew", ServerStreams: true, ClientStreams: true}, renew)
	if err != nil {
		cancel()
		return nil, err
	}
	return &Renewals{number, stream, cancel}, nil
}

// Renew sends a message and waits for its answer. If the context ends first, it closes the stream.
func (r *Renewals) Renew(ctx context.Context, request *wire.RenewRequest) (*wire.RenewResponse, error) {
	defer context.AfterFunc(ctx, r.cancel)()
	response := new(wire.RenewResponse)
	// If the stream has ended, RecvMsg has its status.
	_ = r.stream.SendMsg(request)
	if err := r.stream.RecvMsg(response); err != nil {
		if ctx.Err() != nil {
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		if _, isStatus := status.FromError(err); !isStatus {
			err = ErrStreamEnded
		}
		return nil, err
	}
	if response.GetSequence() != request.GetSequence() {
		// What it decides is for other leases, or was applied already.
		return nil, status.Errorf(codes.DataLoss, "message %d got the answer to message %d", request.GetSequence(), response.GetSequence())
	}
	return response, nil
}

// Close closes the stream.
func (r *Renewals) Close() { r.cancel() }

// RefusesStreams returns whether an error says that a server, or a proxy before it, does not take streams from this
// client. Others may as well mean that the connection broke.
func RefusesStreams(err error) bool {
	switch status.Code(err) {
	case codes.Unimplemented, codes.Aborted, codes.ResourceExhausted:
		return true
	}
	return false
}

// RenewRequest is a message on a stream of renewals.
func RenewRequest(client string, message *session.StreamRequest) *wire.RenewRequest {
	request := &wire.RenewRequest{Sequence: message.Sequence}
	if message.Sequence == 1 {
		request.ClientId = proto.String(client)
	}
	for i := range message.Stated {
		entry := &wire.Entry{Index: message.Indexes[i], Request: resourceRequest(&message.Stated[i])}
		request.Entry = append(request.Entry, entry)
	}
	for _, renewed := range message.Renewed {
		request.Renew = append(request.Renew, &wire.Range{First: renewed.First, Count: renewed.Count})
	}
	return request
}

// ReadRenewed reads the answer on a stream of renewals. sent is when the message was sent. Resources with malformed leases
// are left out.
func ReadRenewed(response *wire.RenewResponse, sent time.Time) *Answer {
	if redirect := response.GetMastership(); redirect != nil {
		return &Answer{Redirect: true, Master: redirect.GetMasterAddress()}
	}
	reply := &session.StreamReply{
		Unix:    response.GetUnixTime(),
		LeftOut: response.GetLeftOut(),
		Restart: response.Restart != nil,
	}
	answer := &Answer{Renewed: reply, resources: map[uint32]*wire.ResourceResponse{}}
	if problem := lastingProblem(response.GetProblem()); problem != nil {
		answer.LeftOut, answer.Why = len(response.GetLeftOut()), problem.GetMessage()
	}
	for _, grant := range response.GetGrant() {
		resource := grant.GetResponse()
		lease, ok := readLease(resource, sent)
		if !ok {
			reply.LeftOut = append(reply.LeftOut, grant.GetIndex())
			answer.Malformed = append(answer.Malformed, resource.GetResourceId())
			continue
		}
		reply.Granted = append(reply.Granted, session.StreamGrant{Index: grant.GetIndex(), Lease: lease})
		answer.resources[grant.GetIndex()] = resource
	}
	return answer
}

// NameRenewed fills in what an answer on a stream says about resources, once the session has named them.
func (a *Answer) NameRenewed() {
	a.Pools, a.Priorities = map[string]session.PoolState{}, map[string]int64{}
	for i := range a.Renewed.Granted {
		grant := &a.Renewed.Granted[i]
		if grant.Lease.ID != "" {
			a.Granted = append(a.Granted, grant.Lease)
			a.readStates(grant.Lease.ID, a.resources[grant.Index])
		}
	}
}
