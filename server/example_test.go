package server_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/perigeemq/perigee/server"
)

// A whole broker inside a program, without a socket or a file.
func ExampleStart() {
	ctx := context.Background()
	b, err := server.Start(ctx, server.Embedded{})
	if err != nil {
		panic(err)
	}
	defer b.Close(ctx)

	client, err := kgo.NewClient(
		kgo.SeedBrokers(b.Bootstrap()), kgo.Dialer(b.Dial),
		kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("greetings"),
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "greetings", Value: []byte("hello")}).FirstErr(); err != nil {
		panic(err)
	}
	client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
		fmt.Printf("%s at offset %d\n", r.Value, r.Offset)
	})
	// Output: hello at offset 0
}

// With a directory the data outlives the broker, and with an address clients of
// other processes may connect.
func ExampleStart_settings() {
	ctx := context.Background()
	b, err := server.Start(ctx, server.Embedded{
		Listen:   "127.0.0.1:0",
		Settings: map[string]string{"num.partitions": "3", "log.retention.ms": "7d"},
	})
	if err != nil {
		panic(err)
	}
	defer b.Close(ctx)
	fmt.Println(b.Ready())
	// Output: <nil>
}
