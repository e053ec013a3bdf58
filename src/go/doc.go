// Package leaseway is a client of Leaseway, a distributed capacity-leasing service, and of Doorman, whose protocol it
// speaks.
//
// A process leases a share of something limited, such as 40 queries per second, and limits its callers to that share,
// without a request per call. The client renews leases in the background:
//
//	client, err := leaseway.Dial("127.0.0.1:5100")
//	searches, err := client.Rate("searches")
//	err = searches.Wait(ctx)
//
// A [Rate] has permits per second, and the methods of golang.org/x/time/rate. A [Gauge] has permits that are in use at
// the same time. A [Budget] is an amount per period that all clients together never overspend. How much capacity is asked
// for is estimated from the callers, unless [WithWants] sets it.
//
// An unreachable server is not an error. Leases last until they expire, and then the [Mode] decides what may be used. A
// lease is not used after its expiry. On systems other than Linux, the clock may stop while the machine is suspended, and
// leases are used for that much longer.
//
// [Balanced] balances load across several rates, in proportion to their leases.
//
// [NewTransport], [UnaryClientInterceptor] and [StreamClientInterceptor] limit the requests of HTTP and gRPC clients by a
// [Limiter].
package leaseway
