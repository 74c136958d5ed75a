package idsegment

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkNext issues IDs from segments of at most 10,000. x_atomic_add is its time against a bare counter that as many
// goroutines share, in the same run.
func BenchmarkNext(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprint("goroutines=", goroutines), func(b *testing.B) {
			var counter atomic.Int64
			started := time.Now()
			spread(b, goroutines, func() { counter.Add(1) })
			baseline := time.Since(started)
			bounds := Bounds{Lo: 1, Hi: 1 << 62}
			s := closing(b, NewSequence(newMemory(bounds), orders, bounds, 1, Options{}))
			b.ResetTimer()
			b.ReportAllocs()
			spread(b, goroutines, func() {
				if _, err := s.Next(b.Context()); err != nil {
					b.Error(err)
				}
			})
			b.ReportMetric(float64(b.Elapsed())/float64(baseline), "x_atomic_add")
		})
	}
}

// BenchmarkRotationNext is BenchmarkNext with the sequences of so many issuers.
func BenchmarkRotationNext(b *testing.B) {
	for _, issuers := range []int{1, 3} {
		for _, goroutines := range []int{1, 64} {
			b.Run(fmt.Sprintf("issuers=%d/goroutines=%d", issuers, goroutines), func(b *testing.B) {
				var counter atomic.Int64
				started := time.Now()
				spread(b, goroutines, func() { counter.Add(1) })
				baseline := time.Since(started)
				r := NewRotation(issuers)
				for i := range issuers {
					bounds := boundsOf(class{i + 1, issuers}, Bounds{Lo: 1, Hi: 1 << 62})
					r.Set(i, NewSequence(newMemory(bounds), orders, bounds, 1, Options{}))
				}
				b.ResetTimer()
				b.ReportAllocs()
				spread(b, goroutines, func() {
					if _, err := r.Next(b.Context()); err != nil {
						b.Error(err)
					}
				})
				b.ReportMetric(float64(b.Elapsed())/float64(baseline), "x_atomic_add")
				if err := r.Close(b.Context()); err != nil {
					b.Error(err)
				}
			})
		}
	}
}

// spread runs fn b.N times on at least so many goroutines.
func spread(b *testing.B, goroutines int, fn func()) {
	if goroutines == 1 {
		for range b.N {
			fn()
		}
		return
	}
	procs := runtime.GOMAXPROCS(0)
	b.SetParallelism((goroutines + procs - 1) / procs)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			fn()
		}
	})
}
