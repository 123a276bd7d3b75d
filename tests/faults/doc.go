// Package faults breaks the connection between an inbox and its database at named steps of a delivery, and checks what is left.
//
// A Proxy stands between a client and a PostgreSQL or MySQL server; it reads just enough of the protocol to see which statement goes
// by. SQLite has no wire, so WrapDriver stands around its driver instead. Both call a Hook twice for every step: before the server, or the
// engine, gets the statement, and after it has run but before the client gets the answer. The hook may do anything in between, such as killing
// the client's process or cancelling a context, and then says whether the connection goes on, is cut, or falls silent.
package faults
