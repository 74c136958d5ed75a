package servers

import "syscall"

// dieWithParent ends a private server with the test binary, however that ends.
var dieWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
