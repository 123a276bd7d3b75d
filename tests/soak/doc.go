// Package soak runs a service for minutes while everything around it dies: consumer processes are killed one after the other, the database
// is crashed and restarted again and again, and RabbitMQ delivers every message three times or more. In the end each message must have
// had its effect once.
//
// `go test` runs a short soak. `make soak` runs the full one, with 10,000 messages, at least 20 kills and 5 restarts per database.
package soak
