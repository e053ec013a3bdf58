package transport

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME of Linux, which package syscall does not have.
const clockBoottime = 7

// bootTime returns the time since the machine was started, including suspends.
func bootTime() time.Duration {
	var now syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0)
	if errno != 0 {
		return monotonic()
	}
	return time.Duration(now.Nano())
}
