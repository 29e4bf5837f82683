package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where the client hangs, the test shall fail rather than wait for ever.
const hang = 60 * time.Second

// Asks for one thing that the broker may not serve; says how that ended: {"refused": words} or {"worked": words}.
func (w wanted) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	worked, err := attempts[w.Feature](ctx, w)
	ended := map[string]string{"worked": worked}
	if err != nil {
		ended = map[string]string{"refused": err.Error()}
	}
	line, _ := json.Marshal(ended)
	fmt.Println(string(line))
}

var attempts = map[string]func(context.Context, wanted) (string, error){
	"transactions": func(ctx context.Context, w wanted) (string, error) {
		client, err := w.client(kgo.TransactionalID(w.Name))
		if err != nil {
			return "", err
		}
		defer client.Close()
		if err := client.BeginTransaction(); err != nil {
			return "", err
		}
		record := kgo.Record{Topic: w.Topic, Value: []byte("in a transaction")}
		return "produced", client.ProduceSync(ctx, &record).FirstErr()
	},
	"groups": func(ctx context.Context, w wanted) (string, error) {
		client, err := w.client(
			kgo.ConsumerGroup(w.Name), kgo.ConsumeTopics(w.Topic), kgo.ServerSideBalancer(),
			kgo.Balancers(kgo.RangeBalancer()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		)
		if err != nil {
			return "", err
		}
		defer client.Close()
		fetches := client.PollRecords(ctx, 1)
		if err := errors.Join(fetches.Err()); err != nil {
			return "", err
		}
		return string(fetches.Records()[0].Value), nil
	},
	"acls": func(ctx context.Context, w wanted) (string, error) {
		client, err := w.client()
		if err != nil {
			return "", err
		}
		defer client.Close()
		request := kmsg.NewPtrDescribeACLsRequest()
		request.ResourceType, request.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
		request.Operation, request.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		_, err = request.RequestWith(ctx, client)
		return "described", err
	},
}

func (w wanted) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(w.Bootstrap), kgo.ClientID(w.Name))...)
}
