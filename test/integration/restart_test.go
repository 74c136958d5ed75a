package integration

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"keyrange/test/gateway"
)

// acknowledged gathers the keys of creates that were answered with 201, by their IDs. It is safe for concurrent use.
type acknowledged struct {
	mu    sync.Mutex
	keys  map[string]string // key by ID, as the text in the ETag
	count atomic.Int64
}

func newAcknowledged() *acknowledged { return &acknowledged{keys: map[string]string{}} }

// add notes a 201; an ID that came before is an error (I1).
func (k *acknowledged) add(key string, a gateway.Answer) error {
	var id, version int64
	if _, err := fmt.Sscanf(a.ETag(), "%d-%d", &id, &version); err != nil || version != 1 {
		return fmt.Errorf("create %s: ETag %q", key, a.ETag())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if other, twice := k.keys[fmt.Sprint(id)]; twice {
		return fmt.Errorf("ID %d was issued to %s and to %s", id, other, key)
	}
	k.keys[fmt.Sprint(id)] = key
	k.count.Add(1)
	return nil
}

// create makes a record and notes it.
func (k *acknowledged) create(g *gateway.Process, key string) error {
	a, err := g.Call("POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
	if err != nil {
		return err
	}
	if a.Status != http.StatusCreated {
		return fmt.Errorf("create %s: %d %s", key, a.Status, a.Body)
	}
	return k.add(key, a)
}

// readBack checks that each record is there.
func (k *acknowledged) readBack(t *testing.T, g *gateway.Process) {
	t.Helper()
	keys := make([]string, 0, len(k.keys))
	for _, key := range k.keys {
		keys = append(keys, key)
	}
	const readers = 16
	err := gateway.Together(readers, func(reader int) error {
		var errs []error
		for i := reader; i < len(keys); i += readers {
			a, err := g.Call("GET", "/v1/records/"+keys[i], "")
			if want := fmt.Sprintf(`{"key":%q}`, keys[i]); err != nil || a.Status != http.StatusOK || a.Body != want {
				errs = append(errs, fmt.Errorf("acknowledged record %s: %d %q, %w", keys[i], a.Status, a.Body, err))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRestart: records survive an orderly stop and a kill, IDs go on without a duplicate, and an orderly stop loses
// none (I1, I3).
func TestRestart(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		const each = 5
		config := gateway.NewStack(t, kind, 2, 10_000_000).Config()
		made := newAcknowledged()
		create := func(g *gateway.Process, round int) {
			t.Helper()
			for i := range each {
				if err := made.create(g, fmt.Sprintf("round-%d-%d", round, i)); err != nil {
					t.Fatal(err)
				}
			}
		}
		g := gateway.Start(t, config)
		create(g, 1)
		g.Stop(t)
		g = gateway.Start(t, config)
		made.readBack(t, g)
		create(g, 2)
		if last := made.keys[fmt.Sprint(2*each)]; last == "" {
			t.Errorf("IDs were lost in an orderly stop: 1 to %d expected, got %v", 2*each, made.keys)
		}
		g.Kill(t)
		g = gateway.Start(t, config)
		made.readBack(t, g)
		create(g, 3)
		made.readBack(t, g)
		g.Stop(t)
	})
}

// crash ends a gateway under a load of creates, and returns those that were acknowledged and the keys of the others.
func crash(t *testing.T, g *gateway.Process, end func(t *testing.T)) (made *acknowledged, others []string) {
	t.Helper()
	const clients, enough = 32, 400
	made = newAcknowledged()
	reached, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	go func() {
		defer close(ended)
		<-reached
		end(t)
	}()
	err := gateway.Together(clients, func(c int) error {
		for i := 0; ; i++ {
			key := fmt.Sprintf("client-%d-%d", c, i)
			a, err := g.Call("POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
			if err != nil || a.Status != http.StatusCreated {
				once.Do(func() { close(reached) })
				mu.Lock()
				defer mu.Unlock()
				others = append(others, key)
				if err == nil && a.Status < http.StatusInternalServerError {
					return fmt.Errorf("create %s: %d %s", key, a.Status, a.Body)
				}
				return nil // the gateway is going away
			}
			if err := made.add(key, a); err != nil {
				return err
			}
			if made.count.Load() >= enough {
				once.Do(func() { close(reached) })
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
	<-ended
	if n := made.count.Load(); n < enough {
		t.Errorf("only %d creates were acknowledged before the end", n)
	}
	return made, others
}

// afterCrash checks the promises: what was acknowledged is there, and every other key can be created or was (I3, I4).
func afterCrash(t *testing.T, g *gateway.Process, made *acknowledged, others []string) {
	t.Helper()
	made.readBack(t, g)
	for _, key := range others {
		a := g.Do(t, "POST", "/v1/records", fmt.Sprintf(`{"key":%q}`, key))
		if !slices.Contains([]int{http.StatusCreated, http.StatusConflict}, a.Status) {
			t.Errorf("create %s again: %d %s", key, a.Status, a.Body)
		}
		if a.Status == http.StatusCreated {
			if err := made.add(key, a); err != nil {
				t.Error(err)
			}
		}
		g.Expect(t, http.StatusOK, "GET", "/v1/records/"+key, "")
	}
}

// TestSIGTERMDrains: a gateway that is told to stop under load finishes what it has begun and exits with 0; every 201 is
// readable afterwards.
func TestSIGTERMDrains(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		config := gateway.NewStack(t, kind, 2, 10_000_000).Config()
		g := gateway.Start(t, config)
		made, others := crash(t, g, g.Stop)
		g = gateway.Start(t, config)
		afterCrash(t, g, made, others)
	})
}

// TestKillUnderLoad: the same for a gateway that is killed, but for the exit code.
func TestKillUnderLoad(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		config := gateway.NewStack(t, kind, 2, 10_000_000).Config()
		g := gateway.Start(t, config)
		made, others := crash(t, g, g.Kill)
		g = gateway.Start(t, config)
		afterCrash(t, g, made, others)
	})
}

// TestDataFolderLock: an embedded data folder belongs to one gateway process.
func TestDataFolderLock(t *testing.T) {
	config := gateway.NewStack(t, gateway.Embedded, 2, 10_000_000).Config()
	g := gateway.Start(t, config)
	printed, code := gateway.Run(t, gateway.WriteConfig(t, config), nil, "serve")
	wantRefusal(t, printed, code, "in use by another gateway process")
	g.Expect(t, http.StatusCreated, "POST", "/v1/records", `{"key":"still-served"}`)
	g.Kill(t)
	g = gateway.Start(t, config)
	g.Expect(t, http.StatusOK, "GET", "/v1/records/still-served", "")
	g.Stop(t)
}
