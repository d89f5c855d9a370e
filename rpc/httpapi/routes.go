package httpapi

import (
	"net/http"

	"google.golang.org/protobuf/reflect/protoreflect"

	wire "github.com/lastword/lastword/rpc/lastword/v1"
)

// route is one call as HTTP sees it. That the table says what rpc/routes.yaml says is
// tested.
type route struct {
	op      string
	method  string
	mutates bool
	request protoreflect.MessageDescriptor
}

var routes = map[string]route{
	"/v1/acquire":  {"acquire", http.MethodPost, true, describe(&wire.AcquireRequest{})},
	"/v1/renew":    {"renew", http.MethodPost, true, describe(&wire.RenewRequest{})},
	"/v1/release":  {"release", http.MethodPost, true, describe(&wire.ReleaseRequest{})},
	"/v1/complete": {"complete", http.MethodPost, true, describe(&wire.CompleteRequest{})},
	"/v1/cancel":   {"cancel", http.MethodPost, true, describe(&wire.CancelRequest{})},
	"/v1/revoke":   {"revoke", http.MethodPost, true, describe(&wire.RevokeRequest{})},
	"/v1/status":   {"status", http.MethodGet, false, describe(&wire.StatusRequest{})},
	"/v1/leases":   {"list", http.MethodGet, false, describe(&wire.ListRequest{})},
	"/v1/watch":    {"watch", http.MethodGet, false, describe(&wire.WatchRequest{})},
}

func describe(m protoreflect.ProtoMessage) protoreflect.MessageDescriptor {
	return m.ProtoReflect().Descriptor()
}
