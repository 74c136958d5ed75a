package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
)

// workload is one kind of traffic.
type workload struct {
	// name is for flags and raw results, title for people.
	name, title string
	// creates makes every request a create of a new key.
	creates bool
	// reads is the share of reads; all other requests are updates.
	reads float64
	// zipf favours few keys; otherwise all are alike.
	zipf bool
	// cold runs a gateway without its key cache; otherwise each key is read once before.
	cold bool
}

// workloads in the order of the report.
var workloads = []workload{
	{name: "create", title: "create", creates: true},
	{name: "read_cold", title: "read, cold cache", reads: 1, cold: true},
	{name: "read_warm", title: "read, warm cache", reads: 1},
	{name: "read_zipf", title: "read, zipf", reads: 1, zipf: true},
	{name: "update", title: "update"},
	{name: "mix_95_5", title: "mix 95/5", reads: 0.95},
	{name: "mix_50_50", title: "mix 50/50", reads: 0.5},
}

// ratioTargets are the least ratios that count as a success, by workload and number of clients.
var ratioTargets = map[string]map[int]float64{
	"create":    {1: 0.7, 64: 2, 256: 4},
	"read_cold": {1: 0.7, 64: 2.5, 256: 4},
	"read_warm": {1: 1.2, 64: 4, 256: 6},
	"update":    {1: 0.7, 64: 1.5, 256: 3},
}

// cpuTargets are the most microseconds of gateway CPU per request at cpuTargetClients, by workload.
var cpuTargets = map[string]float64{"create": 90, "read_cold": 60, "read_warm": 60}

// Other targets.
const (
	cpuTargetClients    = 256
	tailTargetClients   = 256 // where p99 must be no worse than the direct clients'
	memoryTargetClients = 1024
	memoryTargetBytes   = 200 * megabyte
	idTargetNanoseconds = 20

	megabyte = 1_000_000
)

func workloadNames() []string {
	names := make([]string, len(workloads))
	for i, w := range workloads {
		names[i] = w.name
	}
	return names
}

// pickWorkloads reads a list of names, "none" for none.
func pickWorkloads(list string, faults *[]error) []workload {
	var picked []workload
	for _, name := range strings.Split(list, ",") {
		known := name == "none"
		for _, w := range workloads {
			if w.name == name {
				picked, known = append(picked, w), true
			}
		}
		if !known {
			*faults = append(*faults, fmt.Errorf("-workloads: %q is none of %s", name, strings.Join(workloadNames(), ", ")))
		}
	}
	return picked
}

// dataset is the records of one side, numbered from 0.
type dataset struct {
	documentBytes int
	// stored counts the records that are sure to be there.
	stored int64
	// next is the number of the next record to create.
	next atomic.Int64
}

// zipfExponent is just above 1, where a hundredth of 20,000 keys takes about half of the requests.
const zipfExponent = 1.05

// client does requests one after another, as one caller of a service would.
type client interface {
	// create adds a record; read looks it up and proves that it is the key's; update replaces the document.
	create(ctx context.Context, key string, document []byte) error
	read(ctx context.Context, key string) error
	update(ctx context.Context, key string, document []byte) error
	close()
}

// worker is a client with the traffic that it sends.
type worker struct {
	client
	workload workload
	data     *dataset
	random   *rand.Rand
	zipf     *rand.Zipf
	document []byte
}

// newWorker makes worker number n of its side; equal numbers send equal traffic on both sides.
func newWorker(c client, w workload, data *dataset, n int) *worker {
	k := &worker{client: c, workload: w, data: data, random: rand.New(rand.NewPCG(uint64(n), uint64(n)))}
	if w.zipf {
		k.zipf = rand.NewZipf(k.random, zipfExponent, 1, uint64(data.stored-1))
	}
	return k
}

// request sends the next request and waits for its answer.
func (k *worker) request(ctx context.Context) error {
	if k.workload.creates {
		number := k.data.next.Add(1) - 1
		return k.create(ctx, keyOf(number), k.compose(number))
	}
	number := k.pick()
	if k.workload.reads > 0 && k.random.Float64() < k.workload.reads {
		return k.read(ctx, keyOf(number))
	}
	return k.update(ctx, keyOf(number), k.compose(number))
}

// pick chooses a record. Keys are random, so neighbouring numbers are not neighbours in any store.
func (k *worker) pick() int64 {
	if k.zipf != nil {
		return int64(k.zipf.Uint64())
	}
	return k.random.Int64N(k.data.stored)
}

// compose writes a record's document into the worker's own buffer, which lives until the next call.
func (k *worker) compose(number int64) []byte {
	k.document = appendDocument(k.document[:0], number, k.data.documentBytes, k.random.Uint64())
	return k.document
}

// keyOf is the key of a record: random to every store that sorts by it, and unique.
func keyOf(number int64) string {
	return fmt.Sprintf("%016x-%s", mix(uint64(number)), strconv.FormatInt(number, 36))
}

// mix is the finaliser of SplitMix64, a bijection.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// minDocumentBytes holds the longest frame that appendDocument writes around its padding.
const minDocumentBytes = 120

// appendDocument appends the JSON of a record, exactly size bytes. salt makes two versions differ.
func appendDocument(out []byte, number int64, size int, salt uint64) []byte {
	start := len(out)
	out = append(out, `{"key":"`...)
	out = append(out, keyOf(number)...)
	out = append(out, `","total":`...)
	out = strconv.AppendUint(out, salt%1_000_000, 10)
	out = append(out, `,"text":"`...)
	for len(out)-start < size-2 {
		salt = mix(salt)
		out = strconv.AppendUint(out, salt, 36)
	}
	return append(out[:start+size-2], `"}`...)
}
