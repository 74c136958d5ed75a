package handlers

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
)

// compressFromBytes is the size of the smallest answer that is compressed. Smaller ones fit a few packets anyway.
const compressFromBytes = 4 << 10

// compressing wraps the clients' listener: an answer of compressFromBytes or more, or one whose size is not known when it
// is flushed, is sent as gzip to a client that takes it. The ETag stays the same: it names a version of a record, for
// If-Match as well, and since no part of an answer can be asked for, nobody can mix the bytes of two codings. Vary keeps
// caches from doing so.
func compressing(next http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(compressFromBytes),
		gzhttp.CompressionLevel(gzip.BestSpeed),
		gzhttp.EnableZstd(false),
		gzhttp.SetContentType(false),
		gzhttp.ContentTypeFilter(func(media string) bool { return strings.HasPrefix(media, "application/") }),
	)
	if err != nil {
		panic(fmt.Sprintf("the constant settings of the compression: %v", err))
	}
	return wrap(next)
}
