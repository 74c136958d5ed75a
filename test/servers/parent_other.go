//go:build !linux

package servers

import "syscall"

// dieWithParent ends a private server with the test binary where the system can do that. Here it cannot.
var dieWithParent *syscall.SysProcAttr
