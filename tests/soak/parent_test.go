//go:build !linux

package soak

import "syscall"

// dieWithParent needs Linux. Elsewhere a server outlives a test that is killed.
func dieWithParent(*syscall.SysProcAttr) {}
