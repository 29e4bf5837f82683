// One consumer of a group; says what happens to it in the lines that tests/integration/groups/member.py describes.
// Or, where a feature is named, somebody who asks for it (refused.go).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	session   = 2 * time.Second
	heartbeat = 300 * time.Millisecond
)

var balancers = map[string]kgo.GroupBalancer{
	"":                   kgo.RangeBalancer(),
	"range":              kgo.RangeBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

type wanted struct {
	Bootstrap, Group, Topic, Instance, Strategy string
	Feature, Name                               string
}

var speaking sync.Mutex

func tell(words ...any) {
	speaking.Lock()
	defer speaking.Unlock()
	fmt.Println(words...)
}

func listed(numbers []int32) string {
	sorted := slices.Sorted(slices.Values(numbers))
	words := make([]string, len(sorted))
	for at, number := range sorted {
		words[at] = fmt.Sprint(number)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func (w wanted) options() []kgo.Opt {
	released := func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
		tell("revoked", listed(parts[w.Topic]))
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(w.Bootstrap),
		kgo.ConsumerGroup(w.Group),
		kgo.ConsumeTopics(w.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancers[w.Strategy]),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(heartbeat),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.DisableAutoCommit(),
		// What was polled is finished and committed before its partition goes.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, parts map[string][]int32) {
			_, generation := client.GroupMetadata()
			tell("assigned", listed(parts[w.Topic]), generation)
		}),
		kgo.OnPartitionsRevoked(released),
		kgo.OnPartitionsLost(released),
	}
	if w.Instance != "" {
		options = append(options, kgo.InstanceID(w.Instance))
	}
	return options
}

func process(ctx context.Context, client *kgo.Client, record *kgo.Record) {
	tell("processed", record.Partition, record.Offset, string(record.Value))
	if err := client.CommitRecords(ctx, record); err != nil {
		tell("refused", strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	tell("committed", record.Partition, record.Offset)
}

func main() {
	var w wanted
	if err := json.Unmarshal([]byte(os.Args[1]), &w); err != nil {
		panic(err)
	}
	if w.Feature != "" {
		w.ask()
		return
	}
	client, err := kgo.NewClient(w.options()...)
	if err != nil {
		panic(err)
	}
	asked, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	for asked.Err() == nil {
		for _, record := range client.PollRecords(asked, 1).Records() {
			// The message at hand is finished even when it is time to stop.
			process(context.Background(), client, record)
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}
