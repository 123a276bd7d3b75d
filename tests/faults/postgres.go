package faults

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
)

// postgresWire knows PostgreSQL's protocol 3.0: a message is a byte that tells its type, a length that counts itself, and a body.
type postgresWire struct {
	client  net.Conn
	started bool

	statements, portals map[string]string // name → text
}

func newPostgresWire(client net.Conn) wire {
	return &postgresWire{client: client, statements: map[string]string{}, portals: map[string]string{}}
}

// Requests that clients may send in place of the startup message. Their answer is one byte without a type.
const (
	requestTLS    = 80877103
	requestGSSAPI = 80877104
)

func (w *postgresWire) readClient(r *bufio.Reader) ([]byte, error) {
	if w.started {
		return w.readServer(r)
	}
	for {
		msg, err := readSized(r, nil)
		if err != nil {
			return nil, err
		}
		if code := binary.BigEndian.Uint32(msg[4:]); code != requestTLS && code != requestGSSAPI {
			w.started = true
			return msg, nil
		}
		if _, err := w.client.Write([]byte{'N'}); err != nil {
			return nil, err
		}
	}
}

func (w *postgresWire) readServer(r *bufio.Reader) ([]byte, error) {
	kind, err := r.ReadByte()
	if err != nil {
		return nil, err
	}
	return readSized(r, []byte{kind})
}

func readSized(r *bufio.Reader, prefix []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(size[:]))
	if length < 4 {
		return nil, io.ErrUnexpectedEOF
	}
	msg := make([]byte, len(prefix)+length)
	copy(msg, prefix)
	copy(msg[len(prefix):], size[:])
	_, err := io.ReadFull(r, msg[len(prefix)+4:])
	return msg, err
}

func (w *postgresWire) sent(msg []byte) (query string, waits bool) {
	if msg[0] == 0 { // the startup message has no type, and its length begins with zero
		return "", true
	}
	body := msg[5:]
	switch msg[0] {
	case 'Q': // simple query
		query, _ = cstring(body)
		return query, true
	case 'P': // parse: name, text
		name, rest := cstring(body)
		w.statements[name], _ = cstring(rest)
	case 'B': // bind: portal, statement
		portal, rest := cstring(body)
		statement, _ := cstring(rest)
		w.portals[portal] = w.statements[statement]
	case 'E': // execute: portal
		portal, _ := cstring(body)
		return w.portals[portal], false
	case 'D', 'C': // describe, close
	default: // sync, flush, and what is no part of the extended protocol
		return "", true
	}
	return "", false
}

// answered waits for ReadyForQuery.
func (w *postgresWire) answered(msg []byte) bool { return msg[0] == 'Z' }

// cstring cuts a string that ends with a zero byte from b.
func cstring(b []byte) (string, []byte) {
	before, after, _ := bytes.Cut(b, []byte{0})
	return string(before), after
}
