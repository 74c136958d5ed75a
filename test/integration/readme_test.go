package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"keyrange/test/gateway"
)

// consoleBlock is the first fenced console block below a heading that mentions curl.
var consoleBlock = regexp.MustCompile("(?ims)^#+ [^\n]*curl[^\n]*\n.*?^```console\n(.*?)^```")

// readmeAddress is where the README's gateway listens.
var readmeAddress = regexp.MustCompile(`(localhost|127\.0\.0\.1):8080`)

// anyText stands for any text within a line of the README.
const anyText = "..."

// TestReadme: the README's curl commands give the answers that it prints. A line that begins with "$ " is a command; the
// lines up to the next one are what it prints, where "..." stands for anything within the line.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := consoleBlock.FindSubmatch(readme)
	if block == nil {
		t.Fatal("README.md has no console block below a heading that mentions curl")
	}
	config, err := os.ReadFile(filepath.Join(root, gateway.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	g := gateway.StartIn(t, gateway.WriteConfig(t, string(config)), "GATEWAY__SERVER__LISTEN=127.0.0.1:0", "GATEWAY__ADMIN__LISTEN=127.0.0.1:0")
	address := strings.TrimPrefix(g.URL, "http://")
	commands := 0
	for _, part := range strings.Split("\n"+string(block[1]), "\n$ ")[1:] {
		command, want := cutCommand(part)
		run := exec.CommandContext(t.Context(), "bash", "-c", readmeAddress.ReplaceAllLiteralString(command, address))
		run.Dir = t.TempDir()
		printed, err := run.Output()
		if err != nil {
			t.Errorf("$ %s\n%v", command, err)
		}
		wantPrinted(t, command, strings.ReplaceAll(string(printed), address, "127.0.0.1:8080"), readmeAddress.ReplaceAllString(want, "127.0.0.1:8080"))
		commands++
	}
	if commands == 0 {
		t.Error("the console block has no command")
	}
	g.Stop(t)
}

// cutCommand splits a command, which goes on after a backslash at the end of a line, from what it prints.
func cutCommand(part string) (command, printed string) {
	for {
		line, rest, more := strings.Cut(part, "\n")
		command += line
		if !more || !strings.HasSuffix(line, "\\") {
			return command, rest
		}
		command += "\n"
		part = rest
	}
}

// wantPrinted compares line by line; blank lines and carriage returns do not count.
func wantPrinted(t *testing.T, command, printed, want string) {
	t.Helper()
	got, wanted := plainLines(printed), plainLines(want)
	same := len(got) == len(wanted)
	for i := 0; same && i < len(wanted); i++ {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(wanted[i]), regexp.QuoteMeta(anyText), ".*")
		same = regexp.MustCompile("^" + pattern + "$").MatchString(got[i])
	}
	if !same {
		t.Errorf("$ %s\nprints\n%s\nand not\n%s", command, strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
}

// plainLines are the lines with anything on them.
func plainLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n "); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
