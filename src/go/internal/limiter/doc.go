// Package limiter admits callers at the rate, or in the number, that a capacity allows. It knows neither sessions nor
// networks.
//
// Callers are served first come, first served. No caller overtakes a waiting one, so a caller that needs many permits is
// not starved by callers that need few.
//
// The arithmetic and the queue (bucket, count, semaphore, Demand) have no clock, no lock and no goroutine. [Rate] and
// [Gauge] add a lock, the monotonic clock, and a timer that runs only while callers wait for time to pass.
//
// A limiter knows when its lease expires. From then on it uses the fallback capacity, whether or not its owner has run
// since.
package limiter
