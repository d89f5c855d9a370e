package httpapi

import (
	"context"
	_ "embed" // the OpenAPI file
	"errors"
	"log"
	"net"
	"net/http"
	"path"
	"sync"
	"sync/atomic"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	"github.com/lastword/lastword"
	"github.com/lastword/lastword/rpc"
	"github.com/lastword/lastword/rpc/httpapi/internal/gateway"
	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// maxHeaderBytes bounds the request line and the headers of a request to 16 KiB:
// net/http lets 4 KiB more pass.
const maxHeaderBytes = 12 << 10

//go:embed openapi.swagger.json
var openAPI []byte

// Server is the HTTP door. Its methods are safe for concurrent use.
type Server struct {
	cfg   Config
	err   error // of the configuration
	calls http.Handler
	pages *http.ServeMux
	http  *http.Server
	open  atomic.Int64 // calls that are being answered

	closing context.Context // ends with the shutdown, and the reading of bodies with it
	close   context.CancelFunc

	mu     sync.Mutex
	silent map[net.Conn]bool // connections that have not said anything yet
}

// NewServer makes a server of the service behind conn, which is to be
// [rpc.Server.Local]. It listens nowhere until [Server.Serve], which also reports a
// configuration that is not valid.
func NewServer(conn grpc.ClientConnInterface, cfg Config) *Server {
	s := &Server{cfg: cfg, pages: http.NewServeMux(), silent: map[net.Conn]bool{}}
	s.closing, s.close = context.WithCancel(context.Background())
	if s.err = s.cfg.validate(); s.err != nil {
		s.cfg = Config{}
		_ = s.cfg.validate()
	}
	s.err = errors.Join(s.err, s.assemble(conn))
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: s.cfg.RequestTimeout, IdleTimeout: s.cfg.MaxIdle, MaxHeaderBytes: maxHeaderBytes,
		ConnState: s.watchSilence, ConnContext: s.dated,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(serverLog{s.cfg.Logger}, "", 0),
		// No ReadTimeout and no WriteTimeout: they would end a call that waits. Bodies
		// and writes have limits of their own.
	}
	if s.cfg.Identity != nil {
		s.http.TLSConfig = listenerTLS(s.cfg.Identity)
		s.http.Protocols = new(http.Protocols)
		s.http.Protocols.SetHTTP1(true) // the bounds count connections, of one request at a time
	}
	return s
}

func (s *Server) assemble(conn grpc.ClientConnInterface) error {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{}),
		runtime.WithErrorHandler(func(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
			c := callOf(ctx)
			p := failed(c.route, c.asked.Load(), err)
			parting(w, r, p)
			write(w, p)
		}),
		// Nothing of a request but what is asked, and who asks, reaches the service, and
		// nobody sets its deadline by a header.
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithWriteContentLength(),
	)
	s.calls = mux
	s.pages.Handle("/openapi.json", http.HandlerFunc(serveOpenAPI))
	for pattern, page := range s.cfg.Pages {
		s.pages.Handle(pattern, page)
	}
	client := wire.NewAuthorityServiceClient(&limited{conn, make(chan struct{}, s.cfg.MaxWaiting)})
	return gateway.RegisterAuthorityServiceHandlerClient(context.Background(), mux, client)
}

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w = &patient{w, http.NewResponseController(w), &s.cfg}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	s.renewing(w, r)
	r = known(r)
	if r.ContentLength != 0 {
		end := s.announced(w)
		defer end()
	}
	to, isCall := routes[r.URL.Path]
	if p := s.own(r, to.op); p != nil {
		write(w, p)
		return
	}
	if !isCall {
		s.page(w, r)
		return
	}
	if r.Method != to.method {
		notAllowed(w, to.op, to.method)
		return
	}
	if p := s.check(w, r, to); p != nil {
		write(w, p)
		return
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	w.Header().Set("Cache-Control", "no-store")
	r.Header.Del("Grpc-Timeout")
	s.calls.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, &call{route: to})))
}

// page answers what is no call.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	h, pattern := s.pages.Handler(r)
	switch {
	case pattern == "" || path.Clean(r.URL.Path) != r.URL.Path: // what the mux would redirect
		write(w, refused("", http.StatusNotFound, "there is nothing at this path", "/openapi.json describes what there is"))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		notAllowed(w, "", "GET, HEAD")
	case r.ContentLength != 0:
		write(w, refused("", http.StatusBadRequest, "a GET has no body here", ""))
	default:
		h.ServeHTTP(w, r)
	}
}

func notAllowed(w http.ResponseWriter, op, allowed string) {
	w.Header().Set("Allow", allowed)
	write(w, refused(op, http.StatusMethodNotAllowed, "this method is not allowed here", "use "+allowed))
}

// Serve accepts connections of lis, which it closes in the end, until
// [Server.Shutdown]; it then returns nil. Without [Config.Identity] it refuses a
// listener that is not on loopback.
func (s *Server) Serve(lis net.Listener) error {
	err := s.err
	if err == nil && s.cfg.Identity == nil {
		err = rpc.LoopbackOnly(lis.Addr().String())
	}
	if err != nil {
		_ = lis.Close() // the refusal is what matters
		return err
	}
	serve := s.http.Serve
	if s.cfg.Identity != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	if err := serve(newBounded(lis, &s.cfg)); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return &lastword.Error{Code: lastword.CodeUnavailable, Op: "serve", Message: "the HTTP listener failed", Err: err}
	}
	return nil
}

// watchSilence knows the connections that nothing has been asked on. A browser opens
// such ones ahead of time, and they must not hold up a shutdown.
func (s *Server) watchSilence(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		s.silent[c] = true
	} else {
		delete(s.silent, c)
	}
}

// Shutdown closes the listener and idle connections, and waits for the calls under
// way; the waits among them are ended by [rpc.Server.Shutdown], which is to run at
// the same time. When ctx ends first, connections are cut, and it returns an error of
// [lastword.CodeUnknown] if there were calls on them: their callers do not know the
// outcome.
func (s *Server) Shutdown(ctx context.Context) error {
	s.close()
	s.mu.Lock()
	for c := range s.silent {
		_ = c.Close()
	}
	s.mu.Unlock()
	err := s.http.Shutdown(ctx)
	if err == nil {
		return nil
	}
	calls := s.open.Load()
	_ = s.http.Close()
	if calls == 0 {
		return nil
	}
	return &lastword.Error{Code: lastword.CodeUnknown, Op: "shutdown", Message: "calls over HTTP were cut off; their callers do not know the outcome", Err: context.Cause(ctx)}
}
