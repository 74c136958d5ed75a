package deploy

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// project reads a compose file as docker compose does, which is strict about members, references and types. The text may
// differ from that of the file.
func project(file, text string) (*types.Project, error) {
	folder, err := filepath.Abs(filepath.Dir(filepath.Join(root, file)))
	if err != nil {
		return nil, err
	}
	return loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  folder,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(folder, filepath.Base(file)), Content: []byte(text)}},
	}, func(o *loader.Options) { o.SetProjectName(loader.NormalizeProjectName(filepath.Base(folder)), false) })
}

// commonFaults: images have a version, ports are open on loopback and each once, and what is waited for says whether it is
// healthy.
func commonFaults(p *types.Project) (faults []string) {
	published := map[string]string{}
	for name, s := range p.Services {
		if s.Build == nil && !regexp.MustCompile(`:\d[\d.]*$`).MatchString(s.Image) {
			faults = append(faults, fmt.Sprintf("%s: the image %s has no version", name, s.Image))
		}
		if s.Build == nil && (s.HealthCheck == nil || len(s.HealthCheck.Test) < 2 || s.HealthCheck.Test[0] != "CMD" || s.HealthCheck.Retries == nil) {
			faults = append(faults, name+": no healthcheck")
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				faults = append(faults, fmt.Sprintf("%s: the port %s is open to others", name, port.Published))
			}
			if other := published[port.Published]; other != "" {
				faults = append(faults, fmt.Sprintf("%s and %s: both publish %s", name, other, port.Published))
			}
			published[port.Published] = name
		}
	}
	return faults
}

// fleetFaults is what does not fit together in deploy/compose, whose config is given.
func fleetFaults(text, config string, img image) []string {
	p, err := project("deploy/compose/compose.yaml", text)
	if err != nil {
		return []string{err.Error()}
	}
	cfg, err := settingsOf(config)
	if err != nil {
		return []string{err.Error()}
	}
	faults := commonFaults(p)
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	urls, err := cfg.urls()
	if err != nil {
		add("config.yaml: %v", err)
	}
	databases := map[string]bool{}
	for _, u := range urls {
		databases[u.Hostname()] = true
		s, ok := p.Services[u.Hostname()]
		made := s.Environment["MYSQL_DATABASE"]
		switch {
		case !ok:
			add("config.yaml: there is no service %s", u.Host)
		case u.Scheme == "mysql" && (made == nil || u.Path != "/"+*made || u.Port() != "3306"):
			add("config.yaml: the service %s makes no database for %s", u.Hostname(), u.Redacted())
		case u.Scheme == "mongodb" && !strings.Contains(strings.Join(s.HealthCheck.Test, " "), fmt.Sprintf("host: %q", u.Host)):
			add("config.yaml: the replica set of %s does not have the address %s", u.Hostname(), u.Host)
		}
	}
	used := map[string]bool{}
	gateways := 0
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			used[v.Source] = true
		}
		if s.Build == nil {
			if len(s.Volumes) == 0 {
				add("%s: records are lost with the container", name)
			}
			continue
		}
		gateways++
		faults = append(faults, gatewayFaults(s, cfg, img)...)
		for database := range databases {
			if s.DependsOn[database].Condition != "service_healthy" {
				add("%s does not wait for %s", name, database)
			}
		}
	}
	for volume := range p.Volumes {
		if !used[volume] {
			add("the volume %s is not used", volume)
		}
	}
	if gateways != 2 {
		add("%d gateways, want 2", gateways)
	}
	return faults
}

// gatewayFaults is what does not fit in the service of a gateway.
func gatewayFaults(s types.ServiceConfig, cfg settings, img image) (faults []string) {
	add := func(format string, args ...any) { faults = append(faults, s.Name+": "+fmt.Sprintf(format, args...)) }
	if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
		add("build: %v", err)
	}
	if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) <= cfg.grace() {
		add("stop_grace_period is not above shutdown_grace, %s", cfg.grace())
	}
	if len(s.Volumes) != 1 || s.Volumes[0].Target != configFolder || !s.Volumes[0].ReadOnly {
		add("the config is not mounted on %s", configFolder)
	} else if _, err := os.Stat(filepath.Join(s.Volumes[0].Source, "config.yaml")); err != nil {
		add("volumes: %v", err)
	}
	var open []string
	for _, p := range s.Ports {
		open = append(open, fmt.Sprint(p.Target))
	}
	listens := []string{port(cfg.Server.Listen), port(cfg.Admin.Listen)}
	if !slices.Equal(open, listens) || !slices.Equal(img.exposed, listens) {
		add("ports %v are published, the gateway listens on %v, the image exposes %v", open, listens, img.exposed)
	}
	if len(s.Command)+len(s.Entrypoint) > 0 {
		add("it does not run what the image runs")
	}
	return faults
}

// grown is the config with the node that its comment tells to append.
func grown(config string) string { return strings.Replace(config, "  # - {name", "  - {name", 1) }

// TestComposeFleet: the example fleet fits together, also when it grows as the config says.
func TestComposeFleet(t *testing.T) {
	text, config, img := read(t, "deploy/compose/compose.yaml"), read(t, "deploy/compose/config.yaml"), built(t)
	if grown(config) == config {
		t.Error("config.yaml does not say how to grow")
	}
	checkConfig(t, "deploy/compose/config.yaml", config)
	checkConfig(t, "deploy/compose/config.yaml, grown", grown(config))
	checkFaults(t, text, func(text string) []string { return fleetFaults(text, grown(config), img) }, []change{
		{"restart: unless-stopped", "restarts: unless-stopped", "restarts"},
		{"volumes: [mysql-1:/var/lib/mysql]", "volumes: [mysql-9:/var/lib/mysql]", "mysql-9"},
		{"volumes: [mysql-1:/var/lib/mysql]", "environment: {}", "mysql-1: records are lost"},
		{"  mysql-1: {condition", "  mysql-9: {condition", "mysql-9"},
		{"    mysql-2: {condition: service_healthy}\n", "", "gateway-1 does not wait for mysql-2"},
		{"condition: service_healthy", "condition: service_well", "condition"},
		{"  mongo:\n    image", "  mongodb:\n    image", "mongo"},
		{"MYSQL_DATABASE: records", "MYSQL_DATABASE: rows", "makes no database"},
		{`host: "mongo:27017"`, `host: "localhost:27017"`, "does not have the address mongo:27017"},
		{"context: ../..,", "context: ..,", "build: "},
		{"stop_grace_period: 30s", "stop_grace_period: 20s", "stop_grace_period"},
		{"./:/etc/keyrange:ro", "./:/etc/gateway:ro", "not mounted"},
		{"127.0.0.1:8080:8080", "127.0.0.1:8080:80", "are published"},
		{"127.0.0.1:8081:8080", "8081:8080", "open to others"},
		{"127.0.0.1:8081:8080", "127.0.0.1:8080:8080", "both publish 8080"},
		{"mysql:8.4", "mysql:latest", "has no version"},
		{"healthcheck:\n    # Over", "x-health:\n    # Over", "mysql-1: no healthcheck"},
	})
	for from, to := range map[string]string{"@mysql-1:": "@db-1:", "/records": "/rows", "0.0.0.0:9090": "0.0.0.0:9091"} {
		if len(fleetFaults(text, strings.ReplaceAll(config, from, to), img)) == 0 {
			t.Errorf("config.yaml with %q instead of %q has no fault", to, from)
		}
	}
}

// testFaults is what does not fit together in compose.yaml at the root, the servers of the tests.
func testFaults(text string) []string {
	p, err := project("compose.yaml", text)
	if err != nil {
		return []string{err.Error()}
	}
	faults := commonFaults(p)
	open := map[string]bool{}
	for name, s := range p.Services {
		for _, port := range s.Ports {
			open[port.HostIP+":"+port.Published] = true
		}
		if len(s.Tmpfs) == 0 || len(s.Volumes) > 0 {
			faults = append(faults, name+": its data is kept")
		}
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#.*export GATEWAY_TEST_\w+='(.*)'$`).FindAllStringSubmatch(text, -1) {
		for _, a := range regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(m[1], -1) {
			named[a] = true
		}
	}
	if !maps.Equal(named, open) {
		faults = append(faults, fmt.Sprintf("the comment names %v, open are %v", named, open))
	}
	return faults
}

// TestComposeServers: compose.yaml has the servers that its comment and the README tell tests of.
func TestComposeServers(t *testing.T) {
	text := read(t, "compose.yaml")
	checkFaults(t, text, testFaults, []change{
		{"tmpfs: [/data/db", "volumes: [/data/db", "mongo: its data is kept"},
		{"127.0.0.1:33102:3306", "127.0.0.1:33105:3306", "127.0.0.1:33105"},
		{"127.0.0.1:33106:33106", "33106:33106", "mongo: the port 33106 is open to others"},
		{"<<: *mysql\n", "<<: *mysq\n", "mysq"},
	})
	for _, m := range regexp.MustCompile(`(?m)^export GATEWAY_TEST_\w+='.*$`).FindAllString(read(t, "README.md"), -1) {
		for _, a := range regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(m, -1) {
			if !strings.Contains(text, a+":") {
				t.Errorf("README.md names %s, which compose.yaml does not open", a)
			}
		}
	}
}
