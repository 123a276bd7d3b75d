// Package inboxtest is the suite of tests that every dialect of the inbox must pass.
//
// A dialect runs it from a test of its own, with a Database that says how to make and open databases and what the engine
// can do. The suite knows no dialect and no driver:
//
//	func TestConformance(t *testing.T) {
//		inboxtest.TestSchema(t, inboxtest.Database{ … })
//	}
//
// A Bench is for fuzzing and for random texts, bytes and sizes, on the same terms.
//
// Tests are named after the invariant (I1 …) or trap (T15 …) that they are about. All look at rows in the database, not only
// at what the inbox returns.
package inboxtest
