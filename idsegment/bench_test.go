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
			bounds := Bounds{1, 1 << 62}
			s := closing(b, NewSequence(newMemory(bounds.Lo, bounds.Hi), orders, bounds, 1, Options{}))
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
