package inboxtest

import (
	"testing"
)

// testCase is one test of the suite. Its name is that of the trap where there is one.
type testCase struct {
	name string
	run  func(t *testing.T, f *fixture)

	// variants: the outcome may depend on the DSN, so the case runs with each.
	variants bool

	// empty: the database has no tables yet.
	empty bool
}

// cases are all tests of the suite.
var cases = [][]testCase{
	identityCases,
	refusedCases,
	consumerCases,
	fingerprintCases,
	effectCases,
	observerCases,
	schemaCases,
	tableCases,
	conflictCases,
	interruptCases,
	swallowCases,
	endedCases,
	transactionCases,
	commitCases,
	retryCases,
	poisonCases,
	middlewareCases,
	outboxCases,
	publisherCases,
}

// running bounds how many tests of the suite run at once, and so how many connections they have: servers allow about a hundred.
var running = make(chan struct{}, 4)

// TestSchema runs the whole suite as parallel subtests.
func TestSchema(t *testing.T, database Database) {
	for _, group := range cases {
		for _, c := range group {
			if database.Variant && !c.variants {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				running <- struct{}{}
				t.Cleanup(func() { <-running })
				c.run(t, newFixture(t, database, c.empty))
			})
		}
	}
}
