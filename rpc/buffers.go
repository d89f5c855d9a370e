package rpc

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that is wrapped
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// largestPooled is the largest message for which gRPC has a buffer of a fitting size.
// The next one is of a whole mebibyte, which an answer with two results would take for as
// long as its reader lets it wait.
const largestPooled = 32 << 10

// fitting is gRPC's codec, with buffers that fit large messages.
type fitting struct{ encoding.CodecV2 }

func newCodec() fitting { return fitting{encoding.GetCodecV2("proto")} }

// Marshal implements [encoding.CodecV2].
func (c fitting) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok || proto.Size(m) <= largestPooled {
		return c.CodecV2.Marshal(v)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}
