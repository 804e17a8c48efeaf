// A client of grpcplugin.Expander that calls as Cluster Autoscaler does: TLS with the authority of --ca, objects marshaled
// by k8s.io/api itself, 5 s for an answer. The messages around the objects are written by field number.
//
// It reads options as JSON from standard input: {"options": [{"id", "count", "pods": [...]}], "nodes": {id: node}}, and
// prints {"options": [{"id", "count", "debug"}]} or {"code", "message"}. With --record FILE, it writes the request there.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
)

const method = "/grpcplugin.Expander/BestOptions"

type option struct {
	ID    string       `json:"id"`
	Count int32        `json:"count"`
	Debug string       `json:"debug"`
	Pods  []corev1.Pod `json:"pods,omitempty"`
}

type exchange struct {
	Options []option               `json:"options"`
	Nodes   map[string]corev1.Node `json:"nodes,omitempty"`
}

// raw sends and receives messages as bytes.
type raw struct{}

func (raw) Marshal(value any) ([]byte, error) { return *value.(*[]byte), nil }
func (raw) Unmarshal(data []byte, value any) error {
	*value.(*[]byte) = append([]byte{}, data...)
	return nil
}
func (raw) Name() string { return "proto" }
func text(to []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), value)
}

func encode(asked exchange, old bool) ([]byte, error) {
	podField, nodeField := protowire.Number(5), protowire.Number(3)
	if old {
		podField, nodeField = 4, 2
	}
	var request []byte
	for _, each := range asked.Options {
		message := text(nil, 1, []byte(each.ID))
		message = protowire.AppendVarint(protowire.AppendTag(message, 2, protowire.VarintType), uint64(each.Count))
		message = text(message, 3, []byte(each.Debug))
		for index := range each.Pods {
			pod, err := each.Pods[index].Marshal()
			if err != nil {
				return nil, err
			}
			message = text(message, podField, pod)
		}
		request = text(request, 1, message)
	}
	names := make([]string, 0, len(asked.Nodes))
	for name := range asked.Nodes {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		node := asked.Nodes[name]
		data, err := node.Marshal()
		if err != nil {
			return nil, err
		}
		request = text(request, nodeField, text(text(nil, 1, []byte(name)), 2, data))
	}
	return request, nil
}

func decode(data []byte) (exchange, error) {
	found := exchange{Options: []option{}}
	err := fields(data, func(field protowire.Number, value []byte, _ uint64) error {
		var each option
		if err := fields(value, func(inner protowire.Number, value []byte, number uint64) error {
			switch inner {
			case 1:
				each.ID = string(value)
			case 2:
				each.Count = int32(number)
			case 3:
				each.Debug = string(value)
			}
			return nil
		}); err != nil {
			return err
		}
		found.Options = append(found.Options, each)
		return nil
	})
	return found, err
}

func fields(data []byte, each func(protowire.Number, []byte, uint64) error) error {
	for len(data) > 0 {
		field, kind, length := protowire.ConsumeTag(data)
		if length < 0 {
			return protowire.ParseError(length)
		}
		data = data[length:]
		var value []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			value, length = protowire.ConsumeBytes(data)
		case protowire.VarintType:
			number, length = protowire.ConsumeVarint(data)
		default:
			length = protowire.ConsumeFieldValue(field, kind, data)
		}
		if length < 0 {
			return protowire.ParseError(length)
		}
		data = data[length:]
		if err := each(field, value, number); err != nil {
			return err
		}
	}
	return nil
}

func run() error {
	url := flag.String("url", "", "host and port")
	ca := flag.String("ca", "", "file with the authority; empty: no TLS")
	name := flag.String("name", "", "of the server in its certificate; empty: the host")
	old := flag.Bool("old", false, "fields of Cluster Autoscaler up to 1.34.1")
	record := flag.String("record", "", "file for the bytes of the request")
	flag.Parse()
	var asked exchange
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		return err
	}
	request, err := encode(asked, *old)
	if err != nil {
		return err
	}
	if *record != "" {
		if err := os.WriteFile(*record, request, 0o644); err != nil {
			return err
		}
	}
	if *url == "" {
		return nil
	}
	trust := insecure.NewCredentials()
	if *ca != "" {
		if trust, err = credentials.NewClientTLSFromFile(*ca, *name); err != nil {
			return err
		}
	}
	connection, err := grpc.NewClient(*url, grpc.WithTransportCredentials(trust))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var reply []byte
	if err := connection.Invoke(ctx, method, &request, &reply, grpc.ForceCodec(raw{})); err != nil {
		found := status.Convert(err)
		return json.NewEncoder(os.Stdout).Encode(map[string]string{"code": found.Code().String(), "message": found.Message()})
	}
	answer, err := decode(reply)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
