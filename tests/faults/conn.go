package faults

import (
	"bufio"
	"net"
	"sync"
)

// conn is one connection of a client and the one to the server that belongs to it.
type conn struct {
	proxy  *Proxy
	wire   wire
	client net.Conn
	silent bool

	once  sync.Once
	ended chan struct{}

	fromClient, fromServer <-chan []byte

	// What the client has sent since it last waited: the steps, and what came after the last of them. A pipeline has more than one step.
	steps   []request
	request []byte

	// The answer to a step, which is kept back until it is complete.
	asked  Step
	answer []byte
}

// request is a step and what the client has sent for it.
type request struct {
	step Step
	sent []byte
}

func (c *conn) close() {
	c.once.Do(func() {
		close(c.ended)
		_ = c.client.Close()
	})
}

func (c *conn) run() {
	defer c.close()
	var reading sync.WaitGroup
	defer reading.Wait() // after both sides are closed

	if c.silent {
		c.fromClient = c.read(&reading, c.client, c.wire.readClient)
		defer c.close()
		c.stay()
		return
	}
	server, err := net.Dial("tcp", c.proxy.server)
	if err != nil {
		return
	}
	defer server.Close()
	defer c.close()
	c.fromClient = c.read(&reading, c.client, c.wire.readClient)
	c.fromServer = c.read(&reading, server, c.wire.readServer)
	c.forward(server)
}

// read reads messages until one side is closed.
func (c *conn) read(reading *sync.WaitGroup, from net.Conn, next func(*bufio.Reader) ([]byte, error)) <-chan []byte {
	msgs := make(chan []byte)
	reading.Add(1)
	go func() {
		defer reading.Done()
		defer close(msgs)
		r := bufio.NewReader(from)
		for {
			msg, err := next(r)
			if err != nil {
				return
			}
			select {
			case msgs <- msg:
			case <-c.ended:
				return
			}
		}
	}()
	return msgs
}

func (c *conn) forward(server net.Conn) {
	for {
		select {
		case msg, ok := <-c.fromClient:
			if !ok || !c.toServer(server, msg) {
				return
			}
		case msg, ok := <-c.fromServer:
			if !ok || !c.toClient(msg) {
				return
			}
		case <-c.ended:
			return
		}
	}
}

// toServer sends what the client has said once it waits for an answer. It reports whether the connection goes on. The points between the steps of a
// pipeline are passed before the server gets the next step; the client has no answer to any of them.
func (c *conn) toServer(server net.Conn, msg []byte) bool {
	query, waits := c.wire.sent(msg)
	c.request = append(c.request, msg...)
	if step := c.proxy.statements.Step(query); step != "" {
		c.steps = append(c.steps, request{step, c.request})
		c.request = nil
	}
	if !waits {
		return true
	}
	steps, rest := c.steps, c.request
	c.steps, c.request, c.asked = nil, nil, ""
	for _, next := range steps {
		if c.asked != "" && !c.pass(Point{c.asked, After}) || !c.pass(Point{next.step, Before}) {
			return false
		}
		c.asked = next.step
		if _, err := server.Write(next.sent); err != nil {
			return false
		}
	}
	_, err := server.Write(rest)
	return err == nil
}

// toClient sends the answer. That to a step is sent when it is complete, so that the client has got nothing of it before.
func (c *conn) toClient(msg []byte) bool {
	complete := c.wire.answered(msg)
	c.answer = append(c.answer, msg...)
	if c.asked != "" {
		if !complete {
			return true
		}
		step := c.asked
		c.asked = ""
		if !c.pass(Point{step, After}) {
			return false
		}
	}
	_, err := c.client.Write(c.answer)
	c.answer = nil
	return err == nil
}

func (c *conn) pass(point Point) bool {
	held := c.proxy.held() // taken before the hook, which may be what leads to the release
	switch c.proxy.at(point) {
	case Hold:
		c.stayUntil(held)
		return false
	case Cut:
		return false
	default:
		return true
	}
}

// stay keeps the connection open until the client hangs up.
func (c *conn) stay() { c.stayUntil(nil) }

func (c *conn) stayUntil(released <-chan struct{}) {
	for {
		select {
		case _, ok := <-c.fromClient:
			if !ok {
				return
			}
		case <-released:
			return
		case <-c.ended:
			return
		}
	}
}
