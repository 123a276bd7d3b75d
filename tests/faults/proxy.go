package faults

import (
	"bufio"
	"net"
	"sync"
)

// Proxy forwards connections to a server and calls a hook at the steps it sees.
type Proxy struct {
	server     string
	statements Statements
	newWire    func(client net.Conn) wire
	running    sync.WaitGroup

	mu       sync.Mutex
	addr     string
	listener net.Listener // nil while the server is down
	hook     Hook
	silent   bool
	released chan struct{}
	conns    map[*conn]bool
}

// wire is what the proxy must know of a protocol. Each connection has its own.
type wire interface {
	// readClient and readServer read one whole message.
	readClient(r *bufio.Reader) ([]byte, error)
	readServer(r *bufio.Reader) ([]byte, error)

	// sent takes a message of the client. It returns the text of the statement that the message makes the server run, and
	// whether the client now waits for an answer.
	sent(msg []byte) (query string, waits bool)

	// answered takes a message of the server and tells whether it ends the answer.
	answered(msg []byte) bool
}

// NewPostgresProxy starts a proxy before the PostgreSQL server at an address of host and port.
func NewPostgresProxy(server string, statements Statements) (*Proxy, error) {
	return newProxy(server, statements, newPostgresWire)
}

// NewMySQLProxy starts a proxy before the MySQL or MariaDB server at an address of host and port.
func NewMySQLProxy(server string, statements Statements) (*Proxy, error) {
	return newProxy(server, statements, newMySQLWire)
}

func newProxy(server string, statements Statements, newWire func(net.Conn) wire) (*Proxy, error) {
	p := &Proxy{
		server:     server,
		statements: statements,
		newWire:    newWire,
		addr:       "127.0.0.1:0",
		released:   make(chan struct{}),
		conns:      map[*conn]bool{},
	}
	return p, p.Up()
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.addr }

// SetHook sets what is called at every step from now on. Nil lets everything pass.
func (p *Proxy) SetHook(hook Hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

func (p *Proxy) at(point Point) Verdict {
	p.mu.Lock()
	hook, silent := p.hook, p.silent
	p.mu.Unlock()
	switch {
	case silent:
		return Hold
	case hook == nil:
		return Pass
	default:
		return hook(point)
	}
}

// Release cuts the connections that are held.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.released)
	p.released = make(chan struct{})
}

func (p *Proxy) held() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.released
}

// Up ends what Down or Silence has begun. Connections that have been silent are cut.
func (p *Proxy) Up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent {
		p.silent = false
		p.cutAll()
	}
	if p.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.addr, p.listener = listener.Addr().String(), listener
	p.running.Add(1)
	go p.accept(listener)
	return nil
}

// Down cuts all connections and refuses new ones, as a server that is not there.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.cutAll()
}

// Silence holds all connections at their next step, and accepts new ones without ever saying a word, as a server that hangs.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

func (p *Proxy) cutAll() {
	for c := range p.conns {
		c.close()
	}
}

// Close ends the proxy and returns when nothing of it runs any more.
func (p *Proxy) Close() {
	p.Down()
	p.running.Wait()
}

func (p *Proxy) accept(listener net.Listener) {
	defer p.running.Done()
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		c := &conn{proxy: p, client: client, wire: p.newWire(client), ended: make(chan struct{})}
		p.mu.Lock()
		if p.listener != listener { // Down has closed the connections that it knew
			p.mu.Unlock()
			_ = client.Close()
			return
		}
		c.silent = p.silent
		p.conns[c] = true
		p.mu.Unlock()

		p.running.Add(1)
		go func() {
			defer p.running.Done()
			c.run()
			p.mu.Lock()
			delete(p.conns, c)
			p.mu.Unlock()
		}()
	}
}
