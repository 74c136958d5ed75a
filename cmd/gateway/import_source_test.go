package main

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestImportCSV(t *testing.T) {
	s := newBulkServer(t)
	path := writeTemp(t, "in.CSV", utf8BOM+"id,name\r\n1,\"say \"\"hi\"\",\nü\"\n2\n\n3,x\n4,a\"b\n,empty\n5,\xff\n")
	failures := filepath.Join(t.TempDir(), "failed")
	out, errOut, err := runImport(t, s.URL, "", "--key", "id", "--failures", failures, path)
	if err == nil || err.Error() != "4 of 6 records failed" {
		t.Errorf("error %v", err)
	}
	wantReport(t, out, 2, 0, 4)
	want := map[string]string{
		"1": `{"key":"1","id":"1","name":"say \"hi\",\nü"}`,
		"3": `{"key":"3","id":"3","name":"x"}`,
	}
	if !maps.Equal(s.records, want) {
		t.Errorf("records %q, want %q", s.records, want)
	}
	for _, line := range []string{
		"line 4: invalid_csv: 1 fields, the header has 2\n",
		"line 7: invalid_csv: bare \" in non-quoted",
		"line 8: invalid_key: member \"id\" is empty\n",
		"line 9: invalid_csv: invalid UTF-8",
	} {
		if !strings.Contains(errOut, line) {
			t.Errorf("stderr lacks %q:\n%s", line, errOut)
		}
	}
}

func TestImportCSVHeader(t *testing.T) {
	s := newBulkServer(t)
	tests := []struct{ name, text, want string }{
		{"no key column", "a,b\n1,2\n", `CSV header: no column "key" for the key`},
		{"repeated", "key,b,b\n1,2,3\n", `CSV header: two columns are named "b"`},
		{"nameless", "key,,b\n1,2,3\n", "CSV header: column 2 has no name"},
		{"empty", "", "-: no records in it"},
		{"header only", "key,b\n", "-: no records in it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, _, err := runImport(t, s.URL, tt.text, "--format", "csv", "-")
			if err == nil || err.Error() != tt.want || out != "" {
				t.Errorf("got %q, %v, want %s", out, err, tt.want)
			}
		})
	}
}

func TestImportCSVUnclosedQuote(t *testing.T) {
	s := newBulkServer(t)
	text := "key,b\n1,x\n2,\"" + strings.Repeat(strings.Repeat("y", 999)+"\n", importMaxRecord/1000+100)
	out, _, err := runImport(t, s.URL, text, "--format", "csv", "-")
	if want := "CSV, after line 2: a record is longer than 16 MiB, perhaps after an unclosed quote"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	wantReport(t, out, 1, 0, 0)
}

func TestImportKeyField(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"added in front", `  { "sha": "é\n\u0041", "n":1.0}`, `  {"key":"é\nA", "sha": "é\n\u0041", "n":1.0}`},
		{"integer", `{"n":[{"sha":1}],"sha":-12}`, `{"key":"-12","n":[{"sha":1}],"sha":-12}`},
		{"there already", `{"sha":"x","key":"\u0078"}`, `{"sha":"x","key":"\u0078"}`},
		{"there but another", `{"sha":"x","key":"y"}`, `member "key" is "y", but "sha" is "x"`},
		{"there but no string", `{"sha":"1","key":1}`, `member "key" is 1; a key is a string`},
		{"absent", `{"key":"y"}`, `no member "sha"`},
		{"empty", `{"sha":""}`, `member "sha" is empty`},
		{"fraction", `{"sha":1.5}`, `member "sha" is 1.5; a key is a string`},
		{"null", `{"sha":null}`, `member "sha" is null; a key is a string`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			source, err := newImportSource(strings.NewReader(tt.in), "ndjson", importKey{field: "sha", member: "key"})
			if err != nil {
				t.Fatal(err)
			}
			got, err := source.next()
			if err == nil && string(got.doc) != tt.want+"\n" || err != nil && err.Error() != "line 1: invalid_key: "+tt.want {
				t.Errorf("got %q, %v, want %s", got.doc, err, tt.want)
			}
			if _, err := source.next(); !errors.Is(err, io.EOF) {
				t.Errorf("at the end: %v", err)
			}
		})
	}
}

func TestImportBadLines(t *testing.T) {
	s := newBulkServer(t)
	s.disturb = func(_, _ int, key string) int {
		if key == "big" {
			return http.StatusRequestEntityTooLarge
		}
		return asUsual
	}
	long := strings.Repeat("z", importMaxRecord)
	bad := []string{
		`{"key":"a"`, `[1]`, `7`, `{"key":"a"} {"key":"b"}`, `{"key":"a","key":"a"}`, "{\"key\":\"\xff\"}", `{"n":1}`,
		`{"key":"big"}`, `{"key":"` + long + `"}`, `nonsense`, `{"key":5}`, `{"a":1,}`,
	}
	path := writeTemp(t, "in.ndjson", `{"key":"good"}`+"\n"+strings.Join(bad, "\n")+"\n"+`{"key":"good too"}`)
	failures := filepath.Join(t.TempDir(), "failed.ndjson")
	out, errOut, err := runImport(t, s.URL, "", "--failures", failures, path)
	if err == nil || err.Error() != "12 of 14 records failed" {
		t.Errorf("error %v", err)
	}
	wantReport(t, out, 2, 0, 12)
	if got, want := s.keys(), []string{"good", "good too"}; !slices.Equal(got, want) {
		t.Errorf("keys %q, want %q", got, want)
	}
	if got := strings.Count(errOut, "\nline ") + strings.Count(errOut[:5], "line "); got != importShownFailures {
		t.Errorf("%d failures printed, want %d:\n%s", got, importShownFailures, errOut)
	}
	if !strings.Contains(errOut, "further failures are not printed; all are in "+failures) {
		t.Errorf("stderr does not say where the rest is:\n%s", errOut)
	}

	got := map[int]importFailure{}
	text, err := os.ReadFile(failures)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var f importFailure
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		got[f.Line] = f
	}
	if len(got) != len(bad) {
		t.Errorf("%d failures on file, want %d:\n%s", len(got), len(bad), text)
	}
	if want := (importFailure{9, "big", 413, "code_413", "refused big"}); got[9] != want {
		t.Errorf("line 9: %+v, want %+v", got[9], want)
	}
	if want := (importFailure{10, "", 0, "too_long", "longer than 16 MiB"}); got[10] != want {
		t.Errorf("line 10: %+v, want %+v", got[10], want)
	}
	for line, code := range map[int]string{2: "invalid_json", 3: "invalid_json", 6: "invalid_json", 8: "invalid_key", 12: "invalid_key"} {
		if got[line].Code != code {
			t.Errorf("line %d: code %q, want %q", line, got[line].Code, code)
		}
	}
}
