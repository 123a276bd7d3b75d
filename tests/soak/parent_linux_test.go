package soak

import "syscall"

// dieWithParent ends a server also when the test itself is killed.
func dieWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
