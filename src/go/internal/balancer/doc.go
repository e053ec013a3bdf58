// Package balancer picks backends by request counting, as httpd's mod_lbmethod_byrequests does. It knows neither leases
// nor limiters.
//
// [Schedule] decides which member is next. [Balancer] adds a lock and a clock, and enables the backends that have a share
// and are neither paused nor in back-off.
package balancer
