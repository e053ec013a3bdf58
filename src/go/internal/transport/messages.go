package transport

import (
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaseway/leaseway/src/go/internal/session"
	"github.com/leaseway/leaseway/src/go/internal/wire"
)

// maxLeaseSeconds bounds lease lengths, so that they can be added to any time.
const maxLeaseSeconds = 10 * 365 * 86_400

// maxAmount is the maximum amount of servers.
const maxAmount = 1e15

// AskRequest is the request for capacity of a client.
func AskRequest(client string, asks []session.Ask) *wire.GetCapacityRequest {
	// See the rule of the session for late answers.
	request := &wire.GetCapacityRequest{ClientId: proto.String(client), DropsLate: proto.Bool(true)}
	for i := range asks {
		request.Resource = append(request.Resource, resourceRequest(&asks[i]))
	}
	return request
}

func resourceRequest(ask *session.Ask) *wire.ResourceRequest {
	resource := &wire.ResourceRequest{
		ResourceId:  proto.String(ask.ID),
		Priority:    proto.Int64(ask.Demand.Priority),
		Has:         echo(ask.Has),
		Had:         echo(ask.Had),
		Wants:       proto.Float64(ask.Demand.Amount),
		Outstanding: beyondLease(ask.Demand.Outstanding, ask.Has),
	}
	if spent := ask.Demand.Spent; spent != nil {
		resource.Has, resource.Had = allowance(spent, ask), nil
		resource.Spent = spentReport(spent)
	}
	if usage := ask.Demand.Usage; usage != nil {
		resource.Usage = &wire.Usage{
			RechargingFraction: proto.Float64(usage.Recharging),
			RequestCost:        proto.Float64(float64(usage.Units)),
			IntervalMs:         proto.Int64(usage.Interval.Milliseconds()),
		}
	}
	return resource
}

// allowance returns the lease that gave the allowance of a budget, even if it has expired. A smaller allowance than what was
// spent meanwhile counts as what was spent.
func allowance(spent *session.BudgetUse, ask *session.Ask) *wire.Lease {
	lease := ask.Has
	if lease == nil {
		lease = ask.Had
	}
	if lease == nil || lease.Token == 0 || lease.Token != spent.Token {
		return nil
	}
	has := echo(lease)
	has.Capacity = proto.Float64(max(lease.Wire.Capacity, spent.Spent))
	return has
}

func spentReport(spent *session.BudgetUse) *wire.Spent {
	report := &wire.Spent{
		Amount:      proto.Float64(spent.Spent),
		Period:      proto.Int64(spent.Period),
		Incarnation: proto.Uint64(spent.Incarnation),
	}
	if spent.Need > 0 {
		report.Need = proto.Float64(spent.Need)
	}
	return report
}

// beyondLease returns the amount in use beyond the echoed lease, which is what the protocol has. The maximum amount
// stands for everything held.
func beyondLease(outstanding float64, has *session.Lease) *float64 {
	beyond := outstanding
	if has != nil && outstanding < maxAmount {
		beyond -= has.Capacity
	}
	if beyond <= 0 {
		return nil
	}
	return &beyond
}

// echo returns a lease exactly as it was received.
func echo(lease *session.Lease) *wire.Lease {
	if lease == nil {
		return nil
	}
	echo := &wire.Lease{
		ExpiryTime:      proto.Int64(lease.Wire.ExpiryTime),
		RefreshInterval: proto.Int64(lease.Wire.RefreshInterval),
		Capacity:        proto.Float64(lease.Wire.Capacity),
	}
	if lease.Token != 0 {
		echo.Token = proto.Uint64(lease.Token)
	}
	return echo
}

// ReleaseRequest is a request to release leases by name.
func ReleaseRequest(client string, releases []session.Release) *wire.ReleaseCapacityRequest {
	request := &wire.ReleaseCapacityRequest{ClientId: proto.String(client)}
	hasBudgets := slices.ContainsFunc(releases, func(release session.Release) bool { return release.Spent != nil })
	for _, release := range releases {
		if hasBudgets {
			// Reports are matched to resources by position, too.
			report := new(wire.Spent)
			if release.Spent != nil {
				report = spentReport(release.Spent)
			}
			request.Spent = append(request.Spent, report)
		}
		request.ResourceId = append(request.ResourceId, release.ID)
		// 0 stands for no name, because tokens are matched to resources by position.
		request.Token = append(request.Token, release.Token)
	}
	return request
}

// Answer is the answer of a server to a request.
type Answer struct {
	// Redirect is set if the server is not the master. Master is the master, if the server knows it.
	Redirect bool
	Master   string
	Granted  []session.GrantedLease
	// Renewed is the answer on a stream of renewals, or nil. resources has the answered resources, by index.
	Renewed   *session.StreamReply
	resources map[uint32]*wire.ResourceResponse
	// Malformed names the resources of malformed leases.
	Malformed []string
	// Pools has the states of the answered resources that are pools.
	Pools map[string]session.PoolState
	// Priorities has the priorities at which the server counts this client, where the answer has them.
	Priorities map[string]int64
	// LeftOut counts the resources that were left out of the answer for a reason that lasts, and Why is the first reason.
	LeftOut int
	Why     string
}

// ReadAnswer reads the answer to a request for capacity. sent is when the request was sent. The error is that of a
// request of which everything was refused, because it is invalid or a limit was reached.
func ReadAnswer(asked int, response *wire.GetCapacityResponse, sent time.Time) (*Answer, error) {
	problem := lastingProblem(response.GetProblem())
	if problem != nil && len(response.GetResponse()) == 0 {
		switch problem.GetReason() {
		case "bad_value", "bad_id":
			return nil, status.Error(codes.InvalidArgument, problem.GetMessage())
		}
		return nil, status.Error(codes.ResourceExhausted, problem.GetMessage())
	}
	if redirect := response.GetMastership(); redirect != nil {
		return &Answer{Redirect: true, Master: redirect.GetMasterAddress()}, nil
	}
	answer := &Answer{Pools: map[string]session.PoolState{}, Priorities: map[string]int64{}}
	for _, resource := range response.GetResponse() {
		id := resource.GetResourceId()
		lease, ok := readLease(resource, sent)
		if !ok {
			answer.Malformed = append(answer.Malformed, id)
			continue
		}
		answer.Granted = append(answer.Granted, lease)
		answer.readStates(id, resource)
	}
	if problem != nil && asked > len(response.GetResponse()) {
		answer.LeftOut, answer.Why = asked-len(response.GetResponse()), problem.GetMessage()
	}
	return answer, nil
}

func (a *Answer) readStates(id string, resource *wire.ResourceResponse) {
	if pool := resource.GetPool(); pool != nil {
		a.Pools[id] = readPool(pool)
	}
	if resource.Priority != nil {
		a.Priorities[id] = resource.GetPriority()
	}
}

// ReadReleased reads the answer to a release.
func ReadReleased(response *wire.ReleaseCapacityResponse) *Answer {
	if redirect := response.GetMastership(); redirect != nil {
		return &Answer{Redirect: true, Master: redirect.GetMasterAddress()}
	}
	return &Answer{}
}

// lastingProblem returns the first problem that is not transient.
func lastingProblem(problems []*wire.Problem) *wire.Problem {
	for _, problem := range problems {
		switch problem.GetReason() {
		case "too_soon", "not_yet":
		default:
			return problem
		}
	}
	return nil
}

// readLease reads the lease of a response. It returns false if the lease is malformed.
func readLease(response *wire.ResourceResponse, sent time.Time) (session.GrantedLease, bool) {
	gets := response.GetGets()
	if gets == nil || gets.ExpiryTime == nil || gets.RefreshInterval == nil || gets.Capacity == nil {
		return session.GrantedLease{}, false
	}
	capacity := gets.GetCapacity()
	if math.IsNaN(capacity) || math.IsInf(capacity, 0) {
		return session.GrantedLease{}, false
	}
	lease := session.GrantedLease{
		ID:      response.GetResourceId(),
		Length:  leaseLength(gets, sent),
		Refresh: time.Duration(min(max(gets.GetRefreshInterval(), 0), maxLeaseSeconds)) * time.Second,
		Token:   gets.GetToken(),
		Wire: session.Wire{
			ExpiryTime:      gets.GetExpiryTime(),
			RefreshInterval: gets.GetRefreshInterval(),
			Capacity:        capacity,
		},
	}
	if safe := response.SafeCapacity; safe != nil && !math.IsNaN(*safe) {
		lease.Safe, lease.HasSafe = *safe, true
	}
	if budget := response.GetBudget(); budget != nil && budget.PeriodStart != nil {
		lease.Budget = &session.BudgetLease{
			Start: budget.GetPeriodStart(), End: math.MaxInt64, StartsOver: budget.GetStartsOver(),
		}
		if budget.PeriodEnd != nil {
			lease.Budget.End = budget.GetPeriodEnd()
		}
	}
	return lease, true
}

// leaseLength returns the length of a lease, counted from when its request was sent. A server of the original protocol
// sends the expiry by its own clock, so the result is off by the difference of the clocks.
func leaseLength(lease *wire.Lease, sent time.Time) time.Duration {
	const most = maxLeaseSeconds * time.Second
	if lease.RemainingMs != nil {
		return time.Duration(min(max(lease.GetRemainingMs(), 0), most.Milliseconds())) * time.Millisecond
	}
	seconds := lease.GetExpiryTime() - sent.Unix()
	if lease.GetExpiryTime() < 0 {
		seconds = 0
	}
	length := time.Duration(min(max(seconds, 0), maxLeaseSeconds))*time.Second - time.Duration(sent.Nanosecond())
	return max(length, 0)
}

// readPool reads the state of a pool. Malformed numbers count as 0, because they are informational.
func readPool(pool *wire.PoolState) session.PoolState {
	state := session.PoolState{
		Standing:    session.PoolStanding(pool.GetState()),
		Assigned:    finite(pool.GetAssigned()),
		MinCapacity: finite(pool.GetMinCapacity()),
		Reason:      pool.GetReason(),
		Burst:       -1,
	}
	if burst := pool.BurstSeconds; burst != nil && *burst >= 0 {
		state.Burst = time.Duration(min(*burst, session.MaxBurst.Seconds()) * float64(time.Second))
	}
	return state
}

func finite(number float64) float64 {
	if math.IsNaN(number) || math.IsInf(number, 0) {
		return 0
	}
	return number
}
