package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDashboards: every expression of every panel parses and asks for metrics that exist, no two panels overlap or share a
// number, and none is empty.
func TestDashboards(t *testing.T) {
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	known := documented(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var dashboard struct {
			Title, UID string
			Panels     []struct {
				ID          int
				Type, Title string
				GridPos     struct{ X, Y, W, H int }
				Targets     []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &dashboard); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if dashboard.UID == "" || dashboard.Title == "" {
			t.Errorf("%s has no uid or no title", file)
		}
		numbers, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range dashboard.Panels {
			if numbers[p.ID] {
				t.Errorf("%s: two panels have the number %d", file, p.ID)
			}
			numbers[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: %q lies over %q or beyond the edge", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			if p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("%s: %q shows nothing", file, p.Title)
			}
			for _, target := range p.Targets {
				// Grafana's own variables, as Prometheus would see them.
				expr := strings.NewReplacer("$__rate_interval", "5m", "$collection", ".*").Replace(target.Expr)
				checkExpression(t, file+": "+p.Title, expr, known)
			}
		}
	}
}
