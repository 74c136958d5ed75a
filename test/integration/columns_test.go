package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"keyrange/test/gateway"
)

// orders is a collection with a column of each kind in a config file; more is put at its end.
func orders(more, unknown string) string {
	return `collections:
  - {name: records}
  - name: orders
    key: order_id
    unknown_members: ` + unknown + `
    columns:
      - {name: total, type: "decimal(10,2)", required: true}
      - {name: note, type: varchar(200), default: "none"}
      - {name: state, column: order_state, type: "char(5)"}
      - {name: ship-to, column: ship_to, type: json}
      - {name: units, type: BIGINT UNSIGNED}
      - {name: delta, type: bigint}
      - {name: weight, type: double}
      - {name: paid, type: bool, default: "false"}
      - {name: day, type: date}
      - {name: took, type: time(6)}
      - {name: placed, type: datetime(6)}
      - {name: seen, type: timestamp}
      - {name: sum, type: varbinary(16)}
      - {name: text, type: mediumtext}
` + more
}

// TestColumns: typed columns through the built gateway on each kind of database: every type comes back, what a column does
// not take is refused with its name, SQL sees the columns, and the commands work on such tables.
func TestColumns(t *testing.T) {
	stacks(t, func(t *testing.T, kind string) {
		s := gateway.NewStack(t, kind, 2, 10)
		folder := gateway.WriteConfig(t, s.Config()+orders("", "refuse"))
		g := gateway.StartIn(t, folder)
		const sent = `{"order_id":"a/1", "placed":"2026-03-01T12:00:00.5+02:00","total": 1.25e1,"units":18446744073709551615,"delta":-9223372036854775808,"weight":0.1,"day":"2024-02-29",` +
			`"took":"-838:59:59","seen":"2038-01-19T03:14:07Z","sum":"AAEC/w==","state":"new","ship-to":{"zip" : "00100", "n":1.10},"text":"\u00e9'\"\\ \u0000","paid":null}`
		const want = `{"order_id":"a/1","total":12.50,"note":"none","state":"new","ship-to":{"zip" : "00100", "n":1.10},"units":18446744073709551615,"delta":-9223372036854775808,"weight":0.1,"paid":false,` +
			`"day":"2024-02-29","took":"-838:59:59.000000","placed":"2026-03-01T10:00:00.500000Z","seen":"2038-01-19T03:14:07Z","sum":"AAEC/w==","text":"é'\"\\ \u0000"}`
		if a := g.Expect(t, http.StatusCreated, "PUT", "/v1/orders/a%2F1", sent); a.Body != want {
			t.Errorf("created\n%s\nwant\n%s", a.Body, want)
		}
		if a := g.Expect(t, http.StatusOK, "GET", "/v1/orders/a%2F1", ""); a.Body != want {
			t.Errorf("got\n%s\nwant\n%s", a.Body, want)
		}
		if a := g.Expect(t, http.StatusOK, "PUT", "/v1/orders/a%2F1", want); a.Body != want || !strings.HasSuffix(a.ETag(), "-2") {
			t.Errorf("what was read, put back: %s %s", a.ETag(), a.Body)
		}
		for body, words := range map[string]string{
			`{"total":1,"more":2}`:                 `"more" has no column`,
			`{"note":"x"}`:                         `"total" is required`,
			`{"total":1.005}`:                      `"total" must have at most 2 digits after`,
			`{"total":1,"state":"secret"}`:         `"state" has 6 characters`,
			`{"total":1,"placed":"yesterday"}`:     `"placed" must be an RFC 3339 time`,
			`{"total":1,"units":-1}`:               `"units" must be from 0`,
			`{"total":1,"note":{"secret":"x"}}`:    `"note" must be a string`,
			`{"total":1,"sum":"secretsecret===="}`: `"sum" must be base64`,
		} {
			for _, method := range []string{"PUT", "POST"} {
				path := map[string]string{"PUT": "/v1/orders/b", "POST": "/v1/orders"}[method]
				a := g.Expect(t, http.StatusUnprocessableEntity, method, path, body)
				if a.Code() != "invalid_member" || !strings.Contains(strings.ReplaceAll(a.Body, `\"`, `"`), words) || strings.Contains(a.Body, "secret") {
					t.Errorf("%s %s: %s", method, body, a.Body)
				}
			}
		}
		g.Expect(t, http.StatusNotFound, "GET", "/v1/orders/b", "")
		a := g.Expect(t, http.StatusOK, "POST", "/v1/orders", `[{"order_id":"b1","total":1},{"order_id":"b2","total":"secret"},{"order_id":"b3","total":3}]`)
		if strings.Count(a.Body, `"status":201`) != 2 || strings.Count(a.Body, "invalid_member") != 1 {
			t.Errorf("bulk: %s", a.Body)
		}
		g.Expect(t, http.StatusCreated, "PUT", "/v1/records/plain", `{"any": [1]}`)
		if strings.Contains(g.Output.String(), "secret") {
			t.Error("a value is in the log")
		}
		db := gateway.OpenSQL(t, s.Nodes[0].DSN)
		if got := gateway.Column[string](t, db, "SELECT total FROM orders_r00001 ORDER BY total + 0"); fmt.Sprint(got) != "[1.00 3.00 12.50]" {
			t.Errorf("SQL sees %v", got)
		}
		if got := gateway.Column[string](t, db, "SELECT order_state FROM orders_r00001 WHERE note = 'none' AND order_state IS NOT NULL AND document = '{}'"); fmt.Sprint(got) != "[new]" {
			t.Errorf("SQL sees %v", got)
		}
		for i := range 8 { // into the second range
			g.Expect(t, http.StatusCreated, "PUT", fmt.Sprintf("/v1/orders/n%d", i), `{"total":0}`)
		}
		g.Stop(t)
		if printed, code := gateway.Run(t, folder, nil, "ranges"); code != 0 || !strings.Contains(printed, "orders: ok, 11 of 20") {
			t.Errorf("ranges: %d\n%s", code, printed)
		}
		s = loseIndex(t, s, kind)
		folder = gateway.WriteConfig(t, s.Config()+orders("      - {name: extra, type: int}\n", "keep"))
		wantFsck(t, folder, 0, []string{"--repair", "--grace=0s"})
		g = gateway.StartIn(t, folder)
		if a := g.Expect(t, http.StatusOK, "GET", "/v1/orders/a%2F1", ""); a.Body != want {
			t.Errorf("from a rebuilt index:\n%s", a.Body)
		}
		if a := g.Expect(t, http.StatusOK, "PUT", "/v1/orders/n7", `{"more":{"x":null},"total":2,"extra":3}`); a.Body != `{"order_id":"n7","total":2.00,"note":"none","paid":false,"extra":3,"more":{"x":null}}` {
			t.Errorf("with other members: %s", a.Body)
		}
		g.Stop(t)
		// The column that was added cannot be dropped, and check says so too.
		folder = gateway.WriteConfig(t, s.Config()+orders("", "keep"))
		for _, command := range []string{"serve", "check"} {
			printed, code := gateway.Run(t, folder, nil, command)
			wantRefusal(t, printed, code, "orders_r00001", "orders_r00002", "column extra", "does not declare")
		}
	})
}

// TestColumnsConfigRefused: columns that cannot be are refused with their key, and nothing is made.
func TestColumnsConfigRefused(t *testing.T) {
	t.Parallel()
	for column, words := range map[string][]string{
		"{name: \"a`b\", type: int}":                                     {"collections[0].columns[0].name", "a`b", "columns[0].column"},
		"{name: a, column: \"x`; y\", type: int}":                        {"collections[0].columns[0].column", "x`; y"},
		"{name: Document, type: int}":                                    {"columns[0].name", "set collections[0].columns[0].column to another name"},
		"{name: a, column: BIZ_KEY, type: int}":                          {"columns[0].column", "that the gateway or the database has"},
		"{name: key, type: int}":                                         {"columns[0].name", "the member with the key"},
		"{name: a, type: int(5)}":                                        {"columns[0].type", "parentheses"},
		"{name: a, type: int, default: \"x\"}":                           {"columns[0].default", "JSON value"},
		"{name: a, type: int, default: 5}":                               {"columns[0].default", "quotes"},
		"{name: a, type: int}, {name: b, column: A, type: int}":          {"columns[1].column", "same name"},
		"{name: a, type: int}, {name: a, column: b, type: int}":          {"columns[1].name", "same member"},
		"{name: a, type: varchar(16000)}, {name: b, type: varchar(400)}": {"collections[0].columns", "MySQL takes 65535"},
		"{name: a}": {"columns[0].type"}, "{type: int}": {"columns[0].name"},
	} {
		folder := gateway.WriteConfig(t, tiny("{name: records, columns: ["+column+"]}", goodSize, goodNodes))
		printed, code := gateway.Run(t, folder, nil, "check")
		wantRefusal(t, printed, code, words...)
	}
}
