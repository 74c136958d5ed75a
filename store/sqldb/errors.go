package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// phase says how far a failed statement may have come.
type phase bool

const (
	unsent phase = false // no connection yet, or a read: nothing can have changed
	sent   phase = true
)

// Error numbers of MySQL and MariaDB that decide an outcome (source: their error references).
const (
	mysqlDuplicate        = 1062
	mysqlLockWait         = 1205 // undoes the statement only, which is all there is here
	mysqlDeadlock         = 1213
	mysqlReadOnlyOption   = 1290
	mysqlReadOnlyTx       = 1792
	mysqlReadOnlyMode     = 1836
	mysqlTooManyConns     = 1040
	mysqlAccessDenied     = 1045
	mysqlShutdown         = 1053
	mysqlCommitFailed     = 1180
	mysqlDiskFull         = 1021
	mysqlTableFull        = 1114
	mysqlKilled           = 1317
	mysqlBinlogFailed     = 1598
	mysqlPluginAfterHook  = 3101 // group replication rolled the transaction back, or could not say
	mysqlPluginBeforeHook = 3100
)

// translate sorts a driver's error into one of the package's outcomes. Neither the driver's types nor the connection
// string survive it.
func translate(op string, err error, p phase) error {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		return fmt.Errorf("%s: %w: error %d: %s", op, mysqlOutcome(my.Number), my.Number, my.Message)
	}
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		return fmt.Errorf("%s: %w: %s", op, sqliteOutcome(lite.Code()), lite.Error())
	}
	if errors.Is(err, driver.ErrBadConn) {
		// The driver hides that the server said so (RejectReadOnly).
		return fmt.Errorf("%s: %w: the connection is gone, or the server is read-only", op, ErrUnavailable)
	}
	if p == unsent {
		return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, plain(err))
	}
	return fmt.Errorf("%s: %w: %w", op, ErrUnknown, plain(err))
}

// plain keeps the identity of a context error and only the text of any other.
func plain(err error) error {
	for _, cause := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, cause) {
			return cause
		}
	}
	return errors.New(err.Error())
}

func mysqlOutcome(number uint16) error {
	switch number {
	case mysqlDuplicate:
		return ErrDuplicate
	case mysqlShutdown, mysqlCommitFailed, mysqlPluginBeforeHook, mysqlPluginAfterHook, mysqlBinlogFailed:
		return ErrUnknown // reported while the statement was committing
	case mysqlDeadlock, mysqlLockWait, mysqlReadOnlyOption, mysqlReadOnlyTx, mysqlReadOnlyMode, mysqlTooManyConns,
		mysqlAccessDenied, mysqlDiskFull, mysqlTableFull, mysqlKilled:
		return ErrUnavailable
	}
	return ErrRejected
}

func sqliteOutcome(code int) error {
	switch code {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		return ErrDuplicate
	}
	const primaryCode = 0xff // an extended code keeps its primary code in the low byte
	switch code & primaryCode {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN:
		return ErrUnavailable
	case sqlite3.SQLITE_IOERR:
		return ErrUnknown
	}
	return ErrRejected
}

// repeatable reports whether the error proves that nothing happened and that trying again soon may help.
func repeatable(err error) bool {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		return my.Number == mysqlDeadlock || my.Number == mysqlLockWait
	}
	// The driver promises not to have written to a connection that it calls bad, or that the server answered that it is
	// read-only (RejectReadOnly).
	return errors.Is(err, driver.ErrBadConn)
}
