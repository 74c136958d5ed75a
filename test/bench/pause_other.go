//go:build !linux

package main

import "time"

// pause sleeps; nothing when d is not positive.
func pause(d time.Duration) { time.Sleep(d) }
