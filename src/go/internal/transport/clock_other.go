//go:build !linux

package transport

import "time"

// bootTime returns the time of the monotonic clock, because this system has no other. On some systems that clock
// advances during a suspend.
func bootTime() time.Duration { return monotonic() }
