package leaseway

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// failuresBeforeWarning is the number of failures in a row before the first warning.
	failuresBeforeWarning = 3
	// warningInterval is the time between warnings.
	warningInterval = time.Minute
	// maxServers is the maximum number of servers whose last error is remembered.
	maxServers = 8
)

// outage decides on log messages about failures: when several requests in a row have failed, now and then while that
// lasts, and at its end.
type outage struct {
	failures int
	since    time.Time
	// warned is when the last warning was logged, also of an earlier outage, and isLogged whether this one was.
	warned   time.Time
	isLogged bool
	// servers has the last error of each server.
	servers map[string]string
}

// failed records a failure; why begins with the server. It returns the message to log, or an empty one. describeFallback
// says what may be used meanwhile.
func (o *outage) failed(server, why string, describeFallback func() string) string {
	now := time.Now()
	if o.failures == 0 {
		o.since, o.servers = now, map[string]string{}
	}
	o.failures++
	if _, known := o.servers[server]; known || len(o.servers) < maxServers {
		o.servers[server] = why
	}
	if o.failures < failuresBeforeWarning || !o.warned.IsZero() && now.Sub(o.warned) < warningInterval {
		return ""
	}
	o.warned, o.isLogged = now, true
	var errors []string
	for _, why := range o.servers {
		errors = append(errors, why)
	}
	slices.Sort(errors)
	return fmt.Sprintf("no server has answered the last %d requests: %s; meanwhile %s",
		o.failures, strings.Join(errors, "; "), describeFallback())
}

// over records an answer. It returns the message to log, if a warning was logged.
func (o *outage) over(server string) string {
	ended := *o
	*o = outage{warned: o.warned}
	if !ended.isLogged {
		return ""
	}
	return fmt.Sprintf("%s has answered, after %d failed requests in %.1f s",
		server, ended.failures, time.Since(ended.since).Seconds())
}

// throttle limits log messages about a kind of event to one per warningInterval. It counts the events.
type throttle struct {
	logged time.Time
	events int
}

// add counts events. If it is time for a message, it returns the number of events since the last one; else 0.
func (t *throttle) add(events int) int {
	t.events += events
	if events == 0 || !t.logged.IsZero() && time.Since(t.logged) < warningInterval {
		return 0
	}
	events, t.events, t.logged = t.events, 0, time.Now()
	return events
}
