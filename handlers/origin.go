package handlers

import (
	"net"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// preflightAge is how long a browser may remember the answer to a preflight.
const preflightAge = 10 * time.Minute

// Headers of cross-origin requests: those that a page may send, and those of an answer that it may read.
var (
	originRequestHeaders = []string{
		echo.HeaderAuthorization, "X-API-Key", echo.HeaderContentType, echo.HeaderAccept, headerIfMatch, headerIfNoneMatch, headerIdempotencyKey, echo.HeaderXRequestID,
		headerPrefer, "TTL",
	}
	originAnswerHeaders = []string{
		headerETag, echo.HeaderLocation, headerLink, echo.HeaderRetryAfter, echo.HeaderXRequestID, headerReplayed, headerPreferenceApplied, headerExpires, headerAcceptPatch,
		echo.HeaderWWWAuthenticate,
	}
)

// allowOrigins lets pages of the origins use a listener (CORS). Preflights are answered without a credential, because
// browsers send none; cookies are never involved. Without origins there is nothing to do.
func allowOrigins(origins []string) []echo.MiddlewareFunc {
	if len(origins) == 0 {
		return nil
	}
	return []echo.MiddlewareFunc{middleware.CORSWithConfig(middleware.CORSConfig{
		AllowOrigins: origins, AllowHeaders: originRequestHeaders, ExposeHeaders: originAnswerHeaders, MaxAge: int(preflightAge.Seconds()),
	})}
}

// clientAddress finds the address that a request comes from. A forwarded one is only as good as the peer that sent it: it
// counts as far as the chain of peers is in the networks.
func clientAddress(trusted []netip.Prefix) echo.IPExtractor {
	if len(trusted) == 0 {
		return echo.ExtractIPDirect()
	}
	options := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
	for _, network := range trusted {
		ip := network.Masked().Addr()
		options = append(options, echo.TrustIPRange(&net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(network.Bits(), ip.BitLen())}))
	}
	return echo.ExtractIPFromXFFHeader(options...)
}
