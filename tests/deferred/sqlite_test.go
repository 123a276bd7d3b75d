//go:build !cgo

package deferred_test

const sqliteInC = "sqlite"
