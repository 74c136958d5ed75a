package faults

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"time"

	"keyrange/test/gateway"
)

// groups is how many groups the records of clients are in: so many that first records of groups are made all the time, also
// while something goes wrong, and so few that a page holds any of them.
const groups = 2000

// groupOf is the group of the records under a key. It never changes.
func groupOf(key string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(key)) // it cannot fail
	return fmt.Sprintf("g%d", sum.Sum32()%groups)
}

// checkGroups reads every group through a gateway: it has the records that are stored, and no others.
func (s *site) checkGroups(v *stored) {
	want := map[string][]string{}
	for key, row := range v.live {
		var document struct{ G string }
		if err := json.Unmarshal([]byte(row.document), &document); err == nil && document.G != "" {
			want[document.G] = append(want[document.G], key)
		}
	}
	all := slices.Collect(maps.Keys(want))
	_ = gateway.Together(s.options.clients, func(c int) error {
		for i := c; i < len(all); i += s.options.clients {
			s.checkGroup(all[i], want[all[i]])
		}
		return nil
	})
	s.checkGroup("nobody", nil)
}

// checkGroup reads one group, in one page, and again for as long as that is refused.
func (s *site) checkGroup(group string, want []string) {
	var page struct {
		Items []struct{ Key string }
		Next  string
	}
	for start := time.Now(); ; <-time.After(retryPause) {
		a, err := s.gateways[0].Call("GET", "/v1/records?limit=1000&group="+group, "")
		if err == nil && a.Status == http.StatusOK {
			if err = json.Unmarshal([]byte(a.Body), &page); err == nil {
				break
			}
		}
		if time.Since(start) > backWithin {
			s.complain("list of group %s when all is well: %d, %v", group, a.Status, err)
			return
		}
	}
	var got []string
	for _, item := range page.Items {
		got = append(got, item.Key)
	}
	slices.Sort(got)
	slices.Sort(want)
	if page.Next != "" || !slices.Equal(got, want) {
		s.complain("group %s is listed as %v, stored are %v", group, got, want)
	}
}
