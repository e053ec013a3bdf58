// Package leaseway is a client of Leaseway, a distributed capacity-leasing service, and of Doorman, whose protocol it
// speaks.
//
// A process leases a share of something limited, such as 40 queries per second, and holds its callers to the share
// without asking anybody for each of them. The client keeps leases alive in the background:
//
//	client, err := leaseway.Dial("127.0.0.1:5100")
//	searches, err := client.Rate("searches")
//	err = searches.Wait(ctx)
//
// A [Rate] has permits per second, and the methods of golang.org/x/time/rate. A [Gauge] has permits that are in use at
// the same time. A [Budget] is an amount per period that all clients together never overspend. How much capacity is asked
// for is estimated from the callers, unless [WithWants] sets it.
//
// A server that is away is not an error. Leases last until they expire, and then the [Mode] decides what may be used. A
// lease is never used after its expiry.
//
// [Balanced] balances load across several rates, in proportion to their leases.
//
// [NewTransport], [UnaryClientInterceptor] and [StreamClientInterceptor] hold the requests of HTTP and gRPC clients to a
// [Limiter].
package leaseway
