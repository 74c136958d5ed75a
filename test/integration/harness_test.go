// Package integration runs the built gateway as its users do, see package gateway.
package integration

import (
	"os"
	"testing"

	"keyrange/test/gateway"
)

func TestMain(m *testing.M) { os.Exit(gateway.Main(m)) }
