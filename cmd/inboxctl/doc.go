// Command inboxctl is the operator's view of an inbox: its tables, what waits in them, and what is dead.
//
//	inboxctl init       create the tables, or print their DDL
//	inboxctl verify     compare the live tables with the DDL
//	inboxctl status     one line a consumer: processed, pending, claimed, dead, oldest
//	inboxctl list       list messages that wait or are dead
//	inboxctl show       show one message: identity, payload, attempts, last error
//	inboxctl redrive    make dead messages pending again
//	inboxctl discard    remove dead messages for good
//	inboxctl forget     forget identities of one consumer, so that their messages are processed again
//	inboxctl clean      remove identities that are older than messages can be when they come back
//
// It works on PostgreSQL, MySQL, MariaDB and SQLite. The database is named by --dsn, or better by the environment variable INBOX_DSN, because
// arguments of a process can be read by every user of the machine:
//
//	postgres://user:password@host:5432/database
//	mysql://user:password@host:3306/database      MySQL and MariaDB; or in the form of the driver: mysql:user:password@tcp(host:3306)/database
//	sqlite:path/to/file.db                        or in the form of SQLite: file:path/to/file.db?...
//
// Passwords are printed nowhere. Commands that remove or change something show what they are about to do and ask; --yes answers in advance.
//
// # Exit codes
//
//	0    done
//	1    the database cannot be reached, gave an error, or did not answer within --timeout
//	2    usage: a wrong command, flag, argument or DSN
//	3    a table is missing or has another shape
//	4    nothing found: no such consumer, message or identity
//	5    nothing was changed: the question was not answered with yes, or nobody can be asked and --yes is not given; or a waiting
//	     message has the identity to forget, or another sweeper is at work
//	6    the database did not answer to COMMIT: all or nothing was changed, look before you try again
//	130  interrupted while it worked; the error says what was done
//
// An error is one line on standard error that begins with "inboxctl: ". Results go to standard output, as a table or with --output json as one JSON
// document. docs/inboxctl.md has the fields, and real output of each command.
package main
