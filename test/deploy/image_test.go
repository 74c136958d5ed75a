package deploy

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// imageVersion is the version that the image is built with here.
const imageVersion = "v0.0.1-test"

// image is what the Dockerfile makes: Docker's own parser reads it, and the steps of its build stage are done in a folder
// instead of a container, with the compiler of this machine.
type image struct {
	// binary is the built gateway, on this machine.
	binary string
	// args follow the entrypoint unless somebody gives others.
	entrypoint, args, exposed []string
}

var imageOnce = sync.OnceValues(buildImage)

// built is the image, which is made once.
func built(t *testing.T) image {
	t.Helper()
	img, err := imageOnce()
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func buildImage() (image, error) {
	stages, err := dockerfile()
	if err != nil {
		return image{}, err
	}
	b := builder{context: filepath.Join(scratch, "context"), disk: filepath.Join(scratch, "disk"), environment: os.Environ()}
	b.environment = append(b.environment, "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH, "VERSION="+imageVersion)
	if err := sendContext(b.context); err != nil {
		return image{}, fmt.Errorf(".dockerignore: %w", err)
	}
	for _, c := range stages[0].Commands {
		if err := b.do(c); err != nil {
			return image{}, fmt.Errorf("Dockerfile: %s: %w", c, err)
		}
	}
	var img image
	for _, c := range stages[1].Commands {
		switch c := c.(type) {
		case *instructions.CopyCommand:
			if c.From != stages[0].Name || len(c.SourcePaths) != 1 {
				return image{}, fmt.Errorf("Dockerfile: %s: not one file of the stage %s", c, stages[0].Name)
			}
			img.binary = filepath.Join(b.disk, c.SourcePaths[0])
			img.entrypoint = append(img.entrypoint, c.DestPath) // replaced below if it is another
		case *instructions.ExposeCommand:
			img.exposed = append(img.exposed, c.Ports...)
		case *instructions.EntrypointCommand:
			if !slices.Equal(c.CmdLine, img.entrypoint) || c.PrependShell {
				return image{}, fmt.Errorf("Dockerfile: %s: the image has only %s, and no shell", c, img.entrypoint)
			}
		case *instructions.CmdCommand:
			img.args = c.CmdLine
		default:
			return image{}, fmt.Errorf("Dockerfile: %s: not known here", c)
		}
	}
	return img, nil
}

// dockerfile parses the Dockerfile, which has a stage that builds and one that is shipped.
func dockerfile() ([]instructions.Stage, error) {
	file, err := os.Open(filepath.Join(root, "Dockerfile"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	tree, err := parser.Parse(file)
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, w := range tree.Warnings {
		faults = append(faults, w.Short)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, text string, _ []parser.Range) {
		faults = append(faults, rule+": "+text)
	}})
	stages, _, err := instructions.Parse(tree.AST, lint)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 || len(stages) != 2 {
		return nil, fmt.Errorf("Dockerfile: %d stages, want 2; %q", len(stages), faults)
	}
	return stages, nil
}

// sendContext copies what .dockerignore lets through, as docker build does.
func sendContext(to string) error {
	file, err := os.Open(filepath.Join(root, ".dockerignore"))
	if err != nil {
		return err
	}
	defer file.Close()
	patterns, err := ignorefile.ReadAll(file)
	if err != nil {
		return err
	}
	ignored, err := patternmatcher.New(patterns)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err = filepath.Rel(root, name)
		if err != nil || name == "." {
			return err
		}
		skip, err := ignored.MatchesOrParentMatches(name)
		if err != nil {
			return err
		}
		wanted := func(p string) bool { return strings.HasPrefix(p, "!"+name+"/") }
		switch {
		case skip && entry.IsDir() && !slices.ContainsFunc(patterns, wanted):
			return fs.SkipDir
		case skip || entry.IsDir():
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o600)
	})
}

// builder does the steps of a stage in the folder disk, which stands for the root of the container's file system.
type builder struct {
	context, disk, workdir string
	environment            []string
}

func (b *builder) do(c instructions.Command) error {
	switch c := c.(type) {
	case *instructions.ArgCommand: // given from outside
		for _, a := range c.Args {
			if !slices.ContainsFunc(b.environment, func(e string) bool { return strings.HasPrefix(e, a.Key+"=") }) {
				return fmt.Errorf("%s is not given", a.Key)
			}
		}
		return nil
	case *instructions.WorkdirCommand:
		b.workdir = c.Path
		return os.MkdirAll(filepath.Join(b.disk, b.workdir), 0o700)
	case *instructions.CopyCommand:
		if c.From != "" {
			return fmt.Errorf("the stage %s is not known here", c.From)
		}
		command := []string{"-r"}
		for _, source := range c.SourcePaths {
			command = append(command, b.context+"/"+source)
		}
		return b.run("cp", append(command, path.Join(b.disk, b.workdir, c.DestPath))...)
	case *instructions.RunCommand:
		// Absolute paths of the container are below disk.
		return b.run("sh", "-c", strings.ReplaceAll(strings.Join(c.CmdLine, " "), " -o /", " -o "+b.disk+"/"))
	}
	return fmt.Errorf("%s is not known here", c.Name())
}

func (b *builder) run(name string, args ...string) error {
	command := exec.Command(name, args...)
	command.Dir, command.Env = filepath.Join(b.disk, b.workdir), b.environment
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// TestImage: the Dockerfile builds from what .dockerignore lets through, and no test goes along. The gateway in it needs no
// library, knows its version, and serves with the image's arguments.
func TestImage(t *testing.T) {
	img := built(t)
	binary, err := elf.Open(img.binary)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) > 0 || binary.Section(".interp") != nil {
		t.Errorf("the binary needs %q (%v), which an image without anything does not have", libraries, err)
	}
	out, err := gateway(t, "", nil, "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "gateway "+imageVersion+" ") {
		t.Errorf("gateway version: %v, %q", err, out)
	}
	server, admin := serving(t, img.args)
	checkServed(t, "image", server+"/readyz")
	checkServed(t, "image", admin+"/metrics")
	for _, pattern := range []string{"*_test.go", "testdata"} {
		_ = filepath.WalkDir(filepath.Join(scratch, "context"), func(name string, _ fs.DirEntry, err error) error {
			if match, _ := filepath.Match(pattern, filepath.Base(name)); match || err != nil {
				t.Errorf(".dockerignore lets %s through (%v)", name, err)
			}
			return nil
		})
	}
}

// TestImageCompiler: the compiler of the image is the one that go.mod asks for, or a newer one.
func TestImageCompiler(t *testing.T) {
	stages, err := dockerfile()
	if err != nil {
		t.Fatal(err)
	}
	var major, minor, haveMajor, haveMinor int
	_, line, _ := strings.Cut(read(t, "go.mod"), "\ngo ")
	if _, err := fmt.Sscanf(line, "%d.%d", &major, &minor); err != nil {
		t.Fatalf("go.mod: %v", err)
	}
	if _, err := fmt.Sscanf(stages[0].BaseName, "golang:%d.%d", &haveMajor, &haveMinor); err != nil {
		t.Fatalf("Dockerfile: FROM %s: %v", stages[0].BaseName, err)
	}
	if haveMajor < major || haveMajor == major && haveMinor < minor {
		t.Errorf("Dockerfile: %s is older than go %d.%d of go.mod", stages[0].BaseName, major, minor)
	}
}
