package deploy

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	unitFile      = "deploy/systemd/keyrange.service"
	installedPath = "/usr/local/bin/keyrange-gateway"
)

// unitKeys are the settings of systemd that the unit may have. systemd-analyze knows all, and what may be in them.
var unitKeys = map[string]string{
	"Unit": "Description Documentation After Wants",
	"Service": "ExecStartPre ExecStart ExecReload EnvironmentFile Restart RestartSec TimeoutStopSec LimitNOFILE DynamicUser " +
		"ConfigurationDirectory StateDirectory WorkingDirectory LoadCredential ProtectSystem ProtectHome PrivateTmp PrivateDevices " +
		"ProtectKernelTunables ProtectKernelModules ProtectControlGroups RestrictAddressFamilies RestrictNamespaces LockPersonality " +
		"NoNewPrivileges CapabilityBoundingSet SystemCallFilter SystemCallArchitectures",
	"Install": "WantedBy",
}

// parseUnit reads a unit: what is set in all sections together.
func parseUnit(text string) (values map[string]string, faults []string) {
	values = map[string]string{}
	section := ""
	for i, line := range strings.Split(text, "\n") {
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[' && unitKeys[strings.Trim(line, "[]")] != "":
			section = strings.Trim(line, "[]")
		case !ok || !slices.Contains(strings.Fields(unitKeys[section]), key):
			faults = append(faults, fmt.Sprintf("line %d: unknown in [%s]: %s", i+1, section, line))
		case values[key] != "":
			faults = append(faults, fmt.Sprintf("line %d: again: %s", i+1, line))
		default:
			values[key] = value
		}
	}
	return values, faults
}

// unitFaults is what does not fit in the unit by itself.
func unitFaults(text string) []string {
	unit, faults := parseUnit(text)
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, key := range []string{"ExecStartPre", "ExecStart"} {
		if !strings.HasPrefix(unit[key], installedPath+" ") || !strings.Contains(unit[key], " --config "+configFolder+"/config.yaml") {
			add("%s: not what the comment installs", key)
		}
	}
	if unit["ExecReload"] != "/bin/kill -HUP $MAINPID" {
		add("ExecReload: the gateway reads its config again on SIGHUP")
	}
	if unit["ConfigurationDirectory"] != filepath.Base(configFolder) {
		add("ConfigurationDirectory: want %s", configFolder)
	}
	if unit["WorkingDirectory"] != "/var/lib/"+unit["StateDirectory"] {
		add("WorkingDirectory: only StateDirectory can be written")
	}
	cfg, err := settingsOf("")
	stop, stopErr := time.ParseDuration(unit["TimeoutStopSec"])
	if err != nil || stopErr != nil || stop <= cfg.grace() {
		add("TimeoutStopSec is not above shutdown_grace, %s (%v, %v)", cfg.grace(), err, stopErr)
	}
	// What the comment installs: sources, modes, places.
	installs := regexp.MustCompile(`(?m)^#\s+install (?:-D )?-m (\d+) (\S+) (\S+)`).FindAllStringSubmatch(text, -1)
	places := ""
	for _, m := range installs {
		mode, err := strconv.ParseUint(m[1], 8, 32)
		places += m[3] + "\n"
		if err != nil || unit["DynamicUser"] == "yes" && fs.FileMode(mode)&0o4 == 0 {
			add("%s has the mode %s: the service's user cannot read it", m[3], m[1])
		}
		if _, err := os.Stat(filepath.Join(root, m[2])); err != nil && m[2] != "bin/gateway" { // which make build makes
			add("install: %v", err)
		}
	}
	if want := installedPath + "\n" + configFolder + "/config.yaml\n/etc/systemd/system/\n"; places != want {
		add("the comment installs %q, want %q", places, want)
	}
	return faults
}

// verify lets systemd check the unit, with a program that exists in place of the gateway.
func verify(t *testing.T, text string) []string {
	t.Helper()
	folder := t.TempDir()
	stub := filepath.Join(folder, "gateway")
	write(t, stub, "#!/bin/sh\n")
	if err := os.Chmod(stub, 0o700); err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(folder, filepath.Base(unitFile))
	write(t, unit, strings.ReplaceAll(text, installedPath, stub))
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
	if err != nil || len(out) > 0 {
		return []string{fmt.Sprintf("systemd-analyze verify: %v\n%s", err, out)}
	}
	return nil
}

// TestSystemd: systemd takes the unit without a word, and it fits the gateway. Where there is no systemd, the names of its
// settings are checked, but not their values.
func TestSystemd(t *testing.T) {
	text := read(t, unitFile)
	checkFaults(t, text, unitFaults, []change{
		{"ProtectHome=", "ProtectHomes=", "ProtectHomes"},
		{"[Service]", "[Services]", "Services"},
		{"TimeoutStopSec=30s", "TimeoutStopSec=20s", "TimeoutStopSec"},
		{"ExecStart=/usr/local/bin/", "ExecStart=/usr/bin/", "ExecStart: not what"},
		{"StateDirectory=keyrange", "StateDirectory=gateway", "WorkingDirectory"},
		{"install -D -m 0644", "install -D -m 0640", "cannot read it"},
	})
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Logf("no systemd-analyze here: the names of settings were checked, their values were not (%v)", err)
	} else {
		checkFaults(t, text, func(text string) []string { return verify(t, text) }, []change{
			{"ProtectHome=yes", "ProtectHome=perhaps", "perhaps"},
			{"RestartSec=1s", "RestartSec=soon", "soon"},
			{"CapabilityBoundingSet=", "CapabilityBoundingSets=", "CapabilityBoundingSets"},
		})
		t.Log("checked by systemd-analyze verify")
	}
	// The commands are those of the gateway.
	unit, _ := parseUnit(text)
	server, _ := serving(t, strings.Fields(unit["ExecStart"])[1:])
	checkServed(t, "ExecStart", server+"/readyz")
	folder := t.TempDir()
	write(t, filepath.Join(folder, "config.yaml"), read(t, "config.yaml"))
	check := strings.Fields(strings.ReplaceAll(unit["ExecStartPre"], configFolder, folder))[1:]
	if out, err := gateway(t, folder, nil, check...).CombinedOutput(); err != nil {
		t.Errorf("ExecStartPre: %v\n%s", err, out)
	}
}
