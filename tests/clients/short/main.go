// The example of docs/clients.md, between the marks; tests/clients/test_short.py runs it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	// begin
	servers := primitive.NewPassthroughResolver([]string{os.Args[1]})
	sender, err := rocketmq.NewProducer(producer.WithNsResolver(servers), producer.WithGroupName("greeters"))
	check(err)
	check(sender.Start())
	sent, err := sender.SendSync(context.Background(), primitive.NewMessage("Greetings", []byte("hello")))
	check(err)
	fmt.Println(sent.Status == primitive.SendOK)

	reader, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(servers), consumer.WithGroupName("readers"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	check(reader.Subscribe("Greetings", consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				fmt.Println(string(message.Body))
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(reader.Start())
	// end
	os.Stdin.Read(make([]byte, 1))
	check(reader.Shutdown())
	check(sender.Shutdown())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
