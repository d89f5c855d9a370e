// Package httpapi is the wire as JSON over HTTP: the calls of
// lastword.v1.AuthorityService, transcoded by grpc-gateway, for curl and for every
// language that has an HTTP client. docs/http.md is the page for its users.
//
// [NewServer] puts the door before a transcoder that calls the service in the same
// process ([github.com/lastword/lastword/rpc.Server.Local]), so there is one
// validation of what is asked, and one kind of refusal. Routes are in rpc/routes.yaml;
// the OpenAPI file is generated from it and the schema, and served at /openapi.json.
//
// # Guarantees
//
// Field names are the schema's. In answers 64-bit numbers are strings; requests may
// write them as strings or as plain decimal numbers. What is not understood is
// refused before the service sees it: unknown and repeated members, other spellings
// of numbers and durations, query parameters that do not exist, bodies of more than
// [github.com/lastword/lastword/rpc.MaxRequestBytes], JSON that is nested deeper than
// a request can be.
//
// Every refusal of a call is a Problem (RFC 9457), whose outcome says whether it is
// certain that nothing was done; what net/http takes for no request is told in its own
// few words. What the authority said and what nobody heard
// are never the same: the latter is reason UNKNOWN and outcome "unknown", for a call
// that could have changed something.
//
// A caller that goes away ends its call, a waiting one included. Headers, bodies and
// every single write have a time limit, read or not; connections, and the calls among them that
// wait, have a number limit, and who comes above it is told so.
//
// A page in a browser cannot act here: without TLS the Host header has to name this
// machine itself (against DNS rebinding), requests of another origin are refused,
// bodies have to be application/json, and no CORS header is ever sent.
//
// With [Config.Identity], who calls is what the connection's certificate proves, and
// with development tokens what the Authorization header says. The service judges both
// as it does for gRPC, each time; nothing else of a request tells who it is from.
//
// # Not guaranteed
//
// Without [Config.Identity] an owner is what a caller says, or whose token it shows in
// plain text; such a server listens on loopback only. Who loses the connection does not know the outcome, as
// with every transport: the same request_id makes a repetition safe (R2).
package httpapi
