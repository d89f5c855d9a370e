package httpapi

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// marshaler is JSON as this package promises it.
type marshaler struct{}

var (
	_ runtime.Marshaler         = marshaler{}
	_ runtime.Delimited         = marshaler{}
	_ runtime.StreamContentType = marshaler{}
)

// Marshal writes a message on one line. A stream shows its messages as they are, and
// its failure as a Problem, without the envelope that the transcoder puts around them.
func (m marshaler) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case proto.Message:
		return compact(protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}, v), nil
	case map[string]any:
		if a, ok := v["result"].(proto.Message); ok {
			return m.Marshal(a)
		}
	case map[string]proto.Message:
		if st, ok := v["error"].(*spb.Status); ok {
			return problemJSON(failed(routes["/v1/watch"], true, status.FromProto(st).Err())), nil
		}
	}
	return nil, fmt.Errorf("no JSON for a %T", v)
}

// Unmarshal reads a message; unknown members are refused.
func (marshaler) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("no JSON for a %T", v)
	}
	return protojson.Unmarshal(data, m)
}

// NewDecoder implements [runtime.Marshaler].
func (m marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		var b json.RawMessage
		if err := json.NewDecoder(r).Decode(&b); err != nil {
			return err
		}
		return m.Unmarshal(b, v)
	})
}

// NewEncoder implements [runtime.Marshaler].
func (m marshaler) NewEncoder(w io.Writer) runtime.Encoder {
	return runtime.EncoderFunc(func(v any) error {
		b, err := m.Marshal(v)
		if err == nil {
			_, err = w.Write(append(b, '\n'))
		}
		return err
	})
}

// ContentType implements [runtime.Marshaler].
func (marshaler) ContentType(any) string { return "application/json" }

// StreamContentType implements [runtime.StreamContentType].
func (marshaler) StreamContentType(any) string { return "application/x-ndjson" }

// Delimiter implements [runtime.Delimited].
func (marshaler) Delimiter() []byte { return []byte("\n") }
