package contract

import "testing"

// BenchmarkCheck is what a test pays for each answer.
func BenchmarkCheck(b *testing.B) {
	r := Response{Method: "GET", Path: "/v1/records/a", Status: 200, Header: read(), Body: []byte(`{"key":"a","v":[1,2,3]}`)}
	for b.Loop() {
		if err := Default().Check(r); err != nil {
			b.Fatal(err)
		}
	}
}
