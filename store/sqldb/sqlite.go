package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gofrs/flock"
	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

const (
	// sqliteReaders bounds the query-only connections beside the one writer.
	sqliteReaders = 4
	// sqliteLockFile in each data folder is locked by the process that uses it.
	sqliteLockFile = "gateway.lock"
)

func parseSQLite(path string) (Location, error) {
	if path == "" || strings.HasSuffix(path, "/") {
		return Location{}, errors.New("no file: want sqlite://path/to/file.db")
	}
	if strings.ContainsAny(path, "?#") {
		return Location{}, errors.New("a SQLite path takes no parameters: want sqlite://path/to/file.db")
	}
	return Location{Engine: SQLite, Path: filepath.Clean(path)}, nil
}

func cutScheme(rawURL string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(rawURL, "://")
	return strings.ToLower(scheme), rest, ok
}

// connectSQLite opens the file, after a failure anew.
func (db *DB) connectSQLite(ctx context.Context) (server Server, err error) {
	folder := filepath.Dir(db.location.Path)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return server, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	unlock, err := lockFolder(folder)
	if err != nil {
		return server, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	// WAL with synchronous=FULL survives a power cut. One writer in immediate mode and query-only readers never meet a
	// busy error; a deferred transaction that upgrades would.
	base := "file:" + (&url.URL{Path: db.location.Path}).EscapedPath() + "?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)"
	write, err := sql.Open("sqlite", base+"&_txlock=immediate")
	if err != nil {
		return server, translate("open", err, unsent)
	}
	defer func() {
		if err != nil {
			_ = write.Close() // the first error counts
		}
	}()
	write.SetMaxOpenConns(1)
	// The writer goes first: it creates the file in WAL mode, which the readers may not.
	if err := write.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&server.Version); err != nil {
		return server, translate("open", err, unsent)
	}
	read, err := sql.Open("sqlite", base+"&_pragma=query_only(1)")
	if err != nil {
		return server, translate("open", err, unsent)
	}
	read.SetMaxOpenConns(sqliteReaders)
	read.SetMaxIdleConns(sqliteReaders)
	db.write, db.read, db.unlockFile = write, read, unlock
	return server, nil
}

// folderLocks counts the open databases of this process in each locked folder.
var folderLocks = struct {
	sync.Mutex
	held map[string]*folderLock
}{held: map[string]*folderLock{}}

type folderLock struct {
	file  *flock.Flock
	users int
}

// lockFolder makes this process the only one that uses the embedded databases in a folder, until the returned function
// has been called for each of them.
func lockFolder(folder string) (unlock func(), err error) {
	folder, err = filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	folderLocks.Lock()
	defer folderLocks.Unlock()
	lock := folderLocks.held[folder]
	if lock == nil {
		lock = &folderLock{file: flock.New(filepath.Join(folder, sqliteLockFile))}
		ok, err := lock.file.TryLock()
		if err != nil {
			return nil, fmt.Errorf("lock the data folder %s: %w", folder, err)
		}
		if !ok {
			return nil, fmt.Errorf("the data folder %s is in use by another gateway process: stop it, or use another folder", folder)
		}
		folderLocks.held[folder] = lock
	}
	lock.users++
	return sync.OnceFunc(func() {
		folderLocks.Lock()
		defer folderLocks.Unlock()
		if lock.users--; lock.users == 0 {
			_ = lock.file.Unlock() // ends with the process in any case
			delete(folderLocks.held, folder)
		}
	}), nil
}
