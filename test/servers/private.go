package servers

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Environment variables that say how to start servers of a test's own, see scripts/stack.sh. One that is missing fails the
// tests that need it; NoPrivate says that there is to be none.
const (
	// EnvMariaDB is the path of mariadbd; mariadb-install-db is in PATH.
	EnvMariaDB = "GATEWAY_TEST_MARIADBD"
	// EnvFerretDB is the path of ferretdb.
	EnvFerretDB = "GATEWAY_TEST_FERRETDB"
	// EnvPostgres is the URL of the PostgreSQL server behind the server of GATEWAY_TEST_MONGO.
	EnvPostgres = "GATEWAY_TEST_POSTGRES"
)

// NoPrivate is, as the value of EnvMariaDB or EnvFerretDB, the wish to do without private servers of that kind.
const NoPrivate = "none"

// startTimeout bounds the start of a private server.
const startTimeout = 60 * time.Second

// Private is a server that one test has for itself, to kill and to stop it. Where NoPrivate was asked for, it is a proxy to
// one that is shared, which imitates both, and says so in the log.
type Private struct {
	// URL names no database.
	URL string
	// Folder holds the data of a MariaDB server; empty for others.
	Folder string

	name    string
	proxy   *Proxy // when not nil there is no process
	command func() *exec.Cmd
	answers func() error
	running *exec.Cmd
	exited  chan struct{}
	log     *os.File
}

// IsReal reports whether there is a process behind it.
func (p *Private) IsReal() bool { return p.proxy == nil }

// MariaDBOptions changes a private MariaDB server.
type MariaDBOptions struct {
	// Args are further arguments of mariadbd.
	Args []string
	// DiskBytes, when not 0, is the size of a disk of its own for the data folder. It does not survive Kill.
	DiskBytes int64
}

// PrivateMariaDB starts a MariaDB server that lives until the test ends.
func PrivateMariaDB(t testing.TB, options MariaDBOptions) *Private {
	t.Helper()
	if isImitated(t, EnvMariaDB) {
		return imitated(t, "MariaDB", MySQL(t)[len(MySQL(t))-1].URL)
	}
	template, err := mariaDBTemplate()
	if err != nil {
		t.Fatal(err)
	}
	folder := scratch(t)
	data, port := filepath.Join(folder, "data"), freePort(t)
	args := append([]string{os.Getenv(EnvMariaDB), "--no-defaults", "--datadir=" + data, "--port=" + port, "--bind-address=127.0.0.1",
		"--socket=" + filepath.Join(folder, "socket"), "--pid-file=" + filepath.Join(folder, "pid"), "--max-connections=400",
		"--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--performance-schema=OFF", "--user=" + userName()}, options.Args...)
	fill := "cp -a " + template + " " + data
	if options.DiskBytes > 0 {
		// The mount is the server's own and ends with it.
		mount := fmt.Sprintf("mkdir -p %[1]s && mount -t tmpfs -o size=%[2]d tmpfs %[1]s && cp -a %[3]s/. %[1]s/", data, options.DiskBytes, template)
		args = append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", mount + ` && exec "$@"`, "sh"}, args...)
		fill = "true"
	}
	if output, err := exec.CommandContext(t.Context(), "sh", "-c", fill).CombinedOutput(); err != nil {
		t.Fatalf("private MariaDB: %v: %s", err, output)
	}
	p := &Private{URL: "mysql://root@127.0.0.1:" + port + "/", Folder: data, name: "MariaDB"}
	p.command = func() *exec.Cmd { return exec.Command(args[0], args[1:]...) }
	p.answers = func() error {
		return admin(p.URL, func(ctx context.Context, db *sql.DB) error { return db.PingContext(ctx) })
	}
	p.begin(t, filepath.Join(folder, "log"))
	return p
}

// mariaDBTemplate makes a fresh data folder, once in the life of the test binary, and returns its path.
var mariaDBTemplate = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "mariadb-template-")
	if err != nil {
		return "", err
	}
	templates = append(templates, folder)
	data := filepath.Join(folder, "data")
	output, err := exec.Command("mariadb-install-db", "--no-defaults", "--user="+userName(), "--datadir="+data, "--skip-test-db",
		"--auth-root-authentication-method=normal", "--innodb-log-file-size=8M", "--innodb-data-file-path=ibdata1:8M:autoextend").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("mariadb-install-db: %w: %s", err, output)
	}
	return data, nil
})

// templates are the folders that RemoveTemplates removes.
var templates []string

// RemoveTemplates removes what private servers share. A package that starts any calls it at the end of TestMain.
func RemoveTemplates() {
	for _, folder := range templates {
		_ = os.RemoveAll(folder) // in the folder for temporary files, nobody else looks at it
	}
}

// PrivateMongo starts a MongoDB-protocol server that lives until the test ends. Its data are those of the shared server.
func PrivateMongo(t testing.TB) *Private {
	t.Helper()
	if isImitated(t, EnvFerretDB, EnvPostgres) {
		return imitated(t, "MongoDB", Mongo(t).URI)
	}
	folder, port := scratch(t), freePort(t)
	p := &Private{URL: "mongodb://127.0.0.1:" + port + "/", name: "MongoDB"}
	p.command = func() *exec.Cmd {
		return exec.Command(os.Getenv(EnvFerretDB), "--listen-addr=127.0.0.1:"+port, "--no-auth", "--telemetry=disable", "--debug-addr=-",
			"--postgresql-url="+os.Getenv(EnvPostgres), "--state-dir="+folder, "--log-level=error")
	}
	p.answers = func() error {
		return mongoAdmin(p.URL, func(ctx context.Context, client *mongo.Client) error { return client.Ping(ctx, nil) })
	}
	p.begin(t, filepath.Join(folder, "log"))
	return p
}

// isImitated reports whether the first variable asks for no private servers. Without that, a missing variable fails the test:
// a server that could not be installed must not go unnoticed.
func isImitated(t testing.TB, variables ...string) bool {
	t.Helper()
	if os.Getenv(variables[0]) == NoPrivate {
		return true
	}
	for _, name := range variables {
		if os.Getenv(name) == "" {
			t.Fatalf("no private server: %s is not set: run \"make test\", or set %s=%s to do without", name, variables[0], NoPrivate)
		}
	}
	return false
}

// imitated is a proxy to a shared server in the place of a private one.
func imitated(t testing.TB, name, sharedURL string) *Private {
	t.Helper()
	p := &Private{name: name}
	p.proxy, p.URL = NewProxyFor(t, sharedURL)
	t.Logf("no private %s server is to be used: a proxy to the shared one imitates kill and stop", name)
	return p
}

// begin starts the process for the first time and makes sure that it is gone when the test ends.
func (p *Private) begin(t testing.TB, logPath string) {
	t.Helper()
	var err error
	if p.log, err = os.Create(logPath); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.running != nil {
			_ = p.running.Process.Kill() // it may be gone already
			<-p.exited
		}
		_ = p.log.Close()
		if text, err := os.ReadFile(logPath); err == nil && t.Failed() {
			t.Logf("the end of the log of the private %s server:\n%s", p.name, text[max(0, len(text)-2<<10):])
		}
	})
	p.start(t)
}

// start runs the process and waits until it answers.
func (p *Private) start(t testing.TB) {
	t.Helper()
	p.running, p.exited = p.command(), make(chan struct{})
	p.running.Stdout, p.running.Stderr, p.running.SysProcAttr = p.log, p.log, dieWithParent
	if err := p.running.Start(); err != nil {
		p.running = nil
		t.Fatalf("private %s: %v", p.name, err)
	}
	go func(process *exec.Cmd, exited chan struct{}) {
		defer close(exited)
		_ = process.Wait() // killed, as a rule
	}(p.running, p.exited)
	deadline := time.After(startTimeout)
	for {
		err := p.answers()
		if err == nil {
			return
		}
		select {
		case <-p.exited:
			t.Fatalf("private %s has ended: %v", p.name, err)
		case <-deadline:
			t.Fatalf("private %s does not answer: %v", p.name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Kill ends the server without a chance to tidy up.
func (p *Private) Kill(t testing.TB) {
	t.Helper()
	if !p.IsReal() {
		p.proxy.Refuse(true)
		return
	}
	p.signal(t, syscall.SIGKILL)
	<-p.exited
}

// Restart starts a killed server again and waits until it answers.
func (p *Private) Restart(t testing.TB) {
	t.Helper()
	if !p.IsReal() {
		p.proxy.Refuse(false)
		return
	}
	p.start(t)
}

// Stop halts the server: nobody answers, nobody closes.
func (p *Private) Stop(t testing.TB) {
	t.Helper()
	if !p.IsReal() {
		p.proxy.Stall()
		return
	}
	p.signal(t, syscall.SIGSTOP)
}

// Continue ends what Stop began.
func (p *Private) Continue(t testing.TB) {
	t.Helper()
	if !p.IsReal() {
		p.proxy.Resume()
		return
	}
	p.signal(t, syscall.SIGCONT)
}

func (p *Private) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.running.Process.Signal(s); err != nil {
		t.Errorf("private %s: %v: %v", p.name, s, err)
	}
}

// Fresh makes an empty database on a private MariaDB server and returns its URL.
func (p *Private) Fresh(t testing.TB) string {
	t.Helper()
	if !p.IsReal() {
		return FreshMySQL(t, Server{URL: p.URL})
	}
	name := freshName()
	// Safety: the name is made of letters, digits and an underscore. The database ends with the server.
	execute(t, Server{URL: p.URL}, "CREATE DATABASE "+name)
	return p.URL + name
}

// Exec runs statements on a private MariaDB server as its administrator.
func (p *Private) Exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		execute(t, Server{URL: p.URL}, statement)
	}
}

// FreshIndex returns the URL of an empty database through a private MongoDB server, and the URL of the same database
// through the shared one.
func (p *Private) FreshIndex(t testing.TB) (through, direct string) {
	t.Helper()
	direct = FreshMongo(t)
	return replaceHost(t, direct, hostOf(p.URL)), direct
}

// Disk is the path at which the disk of a private MariaDB server can be seen from outside.
func (p *Private) Disk() string {
	return fmt.Sprintf("/proc/%d/root%s", p.running.Process.Pid, p.Folder)
}

// userName is the user who runs the tests: mariadbd does not run as root unless told to.
func userName() string {
	u, err := user.Current()
	if err != nil {
		return "root"
	}
	return u.Username
}

// scratch makes a folder with a path short enough for a UNIX socket.
func scratch(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "private-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) }) // in the folder for temporary files
	return folder
}

// freePort finds a port that nobody listens on. It is none of those that systems give to outgoing connections: one of them
// could take it while its server is down.
func freePort(t testing.TB) string {
	t.Helper()
	const lowest, above, tries = 10_000, 32_000, 100
	for range tries {
		port := strconv.Itoa(lowest + rand.IntN(above-lowest))
		if listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			_ = listener.Close() // it was only a look
			return port
		}
	}
	t.Fatal("no free port for a private server")
	return ""
}
