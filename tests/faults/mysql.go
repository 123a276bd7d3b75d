package faults

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
)

// mysqlWire knows MySQL's protocol without compression and TLS: a packet is three bytes of length, a number that starts at zero with each
// command, and a body.
type mysqlWire struct {
	command  byte // the last one sent
	packets  int  // of the answer to it
	eofs     int
	query    string            // of the statement being prepared
	prepared map[uint32]string // statement id → text
}

func newMySQLWire(net.Conn) wire { return &mysqlWire{prepared: map[uint32]string{}} }

const (
	comQuit        = 0x01
	comQuery       = 0x03
	comPrepare     = 0x16
	comExecute     = 0x17
	comSendLong    = 0x18
	comCloseStmt   = 0x19
	packetOK       = 0x00
	packetEOF      = 0xfe
	packetErr      = 0xff
	mysqlHeader    = 4
	maxEOFBodySize = 5
)

func (w *mysqlWire) readClient(r *bufio.Reader) ([]byte, error) { return readPacket(r) }
func (w *mysqlWire) readServer(r *bufio.Reader) ([]byte, error) { return readPacket(r) }

func readPacket(r *bufio.Reader) ([]byte, error) {
	var header [mysqlHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	length := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
	msg := make([]byte, mysqlHeader+length)
	copy(msg, header[:])
	_, err := io.ReadFull(r, msg[mysqlHeader:])
	return msg, err
}

func (w *mysqlWire) sent(msg []byte) (query string, waits bool) {
	body := msg[mysqlHeader:]
	if msg[3] != 0 || len(body) == 0 {
		return "", true // a reply of the client while it logs in, or the rest of a long command
	}
	w.command, w.packets, w.eofs = body[0], 0, 0
	switch w.command {
	case comQuery:
		return string(body[1:]), true
	case comPrepare:
		w.query = string(body[1:])
	case comExecute:
		return w.prepared[binary.LittleEndian.Uint32(body[1:])], true
	case comCloseStmt:
		delete(w.prepared, binary.LittleEndian.Uint32(body[1:]))
	case comQuit, comSendLong:
	}
	return "", true
}

// answered follows the answer to a query: OK, an error, or a result, in which one EOF ends the columns and one the rows.
func (w *mysqlWire) answered(msg []byte) bool {
	body := msg[mysqlHeader:]
	w.packets++
	if len(body) == 0 {
		return false
	}
	if w.command == comPrepare && w.packets == 1 && body[0] == packetOK {
		w.prepared[binary.LittleEndian.Uint32(body[1:])] = w.query
	}
	switch {
	case body[0] == packetErr:
		return true
	case body[0] == packetOK && w.packets == 1:
		return true
	case body[0] == packetEOF && len(body) <= maxEOFBodySize:
		w.eofs++
		return w.eofs == 2
	default:
		return false
	}
}
