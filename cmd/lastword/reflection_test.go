package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

const serviceName = "lastword.v1.AuthorityService"

// reflectionDoor calls as grpcurl does: it knows nothing of the schema but what the
// server's reflection tells, and makes its messages from that.
type reflectionDoor struct {
	conn    *grpc.ClientConn
	service protoreflect.ServiceDescriptor
	refusal protoreflect.MessageDescriptor
	types   *dynamicpb.Types
}

func newReflectionDoor(ctx context.Context, addr string) (*reflectionDoor, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	d := &reflectionDoor{conn: conn}
	if err := d.learn(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return d, nil
}

func (d *reflectionDoor) close() { _ = d.conn.Close() }

// learn asks for the file of the service and what it imports.
func (d *reflectionDoor) learn(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(d.conn).ServerReflectionInfo(ctx)
	if err != nil {
		return err
	}
	set, have := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	ask := []*reflectionpb.ServerReflectionRequest{{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: serviceName},
	}}
	for len(ask) > 0 {
		if err := stream.Send(ask[0]); err != nil {
			return err
		}
		ask = ask[1:]
		answer, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, b := range answer.GetFileDescriptorResponse().GetFileDescriptorProto() {
			file := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(b, file); err != nil {
				return err
			}
			if have[file.GetName()] {
				continue
			}
			have[file.GetName()] = true
			set.File = append(set.File, file)
			for _, name := range file.GetDependency() {
				ask = append(ask, &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileByFilename{FileByFilename: name}})
			}
		}
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return err
	}
	return d.find(files)
}

func (d *reflectionDoor) find(files *protoregistry.Files) error {
	service, err := files.FindDescriptorByName(serviceName)
	if err != nil {
		return err
	}
	refusal, err := files.FindDescriptorByName("lastword.v1.Refusal")
	if err != nil {
		return err
	}
	d.service, d.refusal = service.(protoreflect.ServiceDescriptor), refusal.(protoreflect.MessageDescriptor)
	d.types = dynamicpb.NewTypes(files)
	return nil
}

func (d *reflectionDoor) method(name string) (protoreflect.MethodDescriptor, string, error) {
	m := d.service.Methods().ByName(protoreflect.Name(name))
	if m == nil {
		return nil, "", fmt.Errorf("reflection knows no %s", name)
	}
	return m, "/" + serviceName + "/" + name, nil
}

// dynamic makes a message of JSON.
func (d *reflectionDoor) dynamic(m protoreflect.MessageDescriptor, request object) (*dynamicpb.Message, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	out := dynamicpb.NewMessage(m)
	return out, protojson.UnmarshalOptions{Resolver: d.types}.Unmarshal(b, out)
}

func (d *reflectionDoor) call(ctx context.Context, op string, request object) (answer, refusal object, err error) {
	m, path, err := d.method(map[string]string{
		"acquire": "Acquire", "renew": "Renew", "complete": "Complete", "release": "Release", "status": "Status",
	}[op])
	if err != nil {
		return nil, nil, err
	}
	in, err := d.dynamic(m.Input(), request)
	if err != nil {
		return nil, nil, err
	}
	out := dynamicpb.NewMessage(m.Output())
	if err := d.conn.Invoke(ctx, path, in, out); err != nil {
		refusal, err := d.refused(err)
		return nil, refusal, err
	}
	answer, err = shape(out, nil)
	return answer, nil, err
}

// refused reads the detail of a status.
func (d *reflectionDoor) refused(err error) (object, error) {
	for _, detail := range status.Convert(err).Proto().GetDetails() {
		if string(detail.MessageName()) != string(d.refusal.FullName()) {
			continue
		}
		m := dynamicpb.NewMessage(d.refusal)
		if err := proto.Unmarshal(detail.GetValue(), m); err != nil {
			return nil, err
		}
		return shape(m, nil)
	}
	return nil, err
}

func (d *reflectionDoor) watch(ctx context.Context, prefix string, show func(object)) error {
	m, path, err := d.method("Watch")
	if err != nil {
		return err
	}
	in, err := d.dynamic(m.Input(), object{"prefix": prefix})
	if err != nil {
		return err
	}
	stream, err := d.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err == nil {
		err = errors.Join(stream.SendMsg(in), stream.CloseSend())
	}
	if err != nil {
		return err
	}
	for {
		out := dynamicpb.NewMessage(m.Output())
		if err := stream.RecvMsg(out); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		o, err := shape(out, nil)
		if err != nil {
			return err
		}
		show(o)
	}
}
