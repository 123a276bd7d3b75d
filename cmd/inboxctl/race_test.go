//go:build race

package main

// raceFlags build the binary as the test is built.
var raceFlags = []string{"-race"}
