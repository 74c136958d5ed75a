package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

const (
	exportStateVersion = 1
	// exportSaveEvery is how much work is done again after an interruption. Noting costs a write to the disk that waits.
	exportSaveEvery = 100 * time.Millisecond
	exportSuffix    = ".progress"
)

// exportState is what FILE.progress has: how far FILE is whole.
type exportState struct {
	Version    int    `json:"version"`
	Server     string `json:"server"`
	Collection string `json:"collection"`
	Order      string `json:"order"`
	// Cursor is where the list goes on; empty at its beginning.
	Cursor string `json:"cursor"`
	// Bytes of the file are whole lines, of so many Records, in Folded of which line breaks became spaces.
	Bytes   int64 `json:"bytes"`
	Records int64 `json:"records"`
	Folded  int64 `json:"folded"`
}

// exportFile is the file of an export with its progress beside it.
type exportFile struct {
	*os.File
	progress string
	lock     *flock.Flock
}

// openFile begins the file of the export, or goes on where an earlier run of it was: what that wrote without noting it is
// cut off. say tells people.
func (r *exportRun) openFile(say func(string)) (*exportFile, error) {
	f := &exportFile{progress: r.out + exportSuffix, lock: flock.New(r.out)}
	_, err := os.Lstat(f.progress)
	begins := errors.Is(err, os.ErrNotExist)
	switch {
	case begins && fileExists(r.out):
		return nil, fmt.Errorf("--out: %s exists, and there is no %s of an unfinished export: remove it, or name another file", r.out, f.progress)
	case begins:
		// Before the file, so that there is never one without it that is not complete.
		if err := f.note(r.state); err != nil {
			return nil, err
		}
	}
	if f.File, err = os.OpenFile(r.out, os.O_RDWR|os.O_CREATE, 0o666); err != nil { // the umask decides, as for any output
		return nil, fmt.Errorf("--out: %w", err)
	}
	if err = r.resume(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !begins {
		say(fmt.Sprintf("going on after %s records of an export that was begun at %s", thousands(r.state.Records), r.state.Server))
	}
	return f, nil
}

// resume takes the file for this run and goes to the end of what is whole of it.
func (r *exportRun) resume(f *exportFile) error {
	if locked, err := f.lock.TryLock(); err != nil {
		return fmt.Errorf("--out: %w", err)
	} else if !locked {
		return fmt.Errorf("--out: another export writes to %s", r.out)
	}
	known, err := readExportState(f.progress)
	if err != nil {
		return err
	}
	if known.Collection != r.collection || known.Order != r.order {
		return fmt.Errorf("--out: %s is of an export of collection %s in order %s: finish that first, or remove both files", f.progress, known.Collection, known.Order)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < known.Bytes {
		return fmt.Errorf("--out: %s has %d bytes, but %s says that %d were written: it was changed meanwhile; remove both to start over", r.out, info.Size(), f.progress, known.Bytes)
	}
	r.state = known
	if err := f.Truncate(known.Bytes); err != nil {
		return err
	}
	_, err = f.Seek(0, io.SeekEnd)
	return err
}

// readExportState reads what an earlier run noted; the error matches os.ErrNotExist when there was none.
func readExportState(path string) (state exportState, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return state, err
	}
	if err := json.Unmarshal(text, &state); err != nil || state.Version != exportStateVersion || state.Bytes < 0 || state.Records < 0 {
		return state, fmt.Errorf("%s is not the progress of an export that this gateway understands: remove it and the file to start over", path)
	}
	return state, nil
}

func (f *exportFile) write(lines []byte) error {
	_, err := f.Write(lines)
	return err
}

// save makes sure of the file before it says that it is whole.
func (f *exportFile) save(state exportState) error {
	if err := f.Sync(); err != nil {
		return err
	}
	return f.note(state)
}

// note replaces the progress as a whole.
func (f *exportFile) note(state exportState) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(f.progress), filepath.Base(f.progress)+".*")
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	_, err = temporary.Write(append(text, '\n'))
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), f.progress)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}

// finish leaves the file alone, complete.
func (f *exportFile) finish() error {
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Remove(f.progress)
}

// Close leaves the progress as it was noted last.
func (f *exportFile) Close() error { return errors.Join(f.File.Close(), f.lock.Close()) }
