package main

import (
	"syscall"
	"time"
)

// pause sleeps in the kernel; nothing when d is not positive.
func pause(d time.Duration) {
	if d > 0 {
		ts := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&ts, nil) // a signal may cut it short, which makes one request early
	}
}
