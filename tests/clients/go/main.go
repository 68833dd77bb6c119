// What an application does with the Go client, with default settings. Prints a line `name value...` for each fact;
// tests/clients/test_clients.py judges. With a topic as second argument it goes on for ever; tests/pairs/test_failover.py judges.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	wait  = 40 * time.Second
	quiet = time.Second
)

var (
	namesrv  []string
	printing sync.Mutex
	began    = time.Now().UnixNano()
)

func main() {
	rlog.SetLogLevel("error")
	namesrv = []string{os.Args[1]}
	if len(os.Args) > 2 {
		goOn(os.Args[2])
		return
	}
	produceAndConsume()
	order()
	broadcast()
	delay()
	transaction()
	say("end")
}

// goOn sends and consumes until stdin ends. A line there: another consumer of the group takes the place of the first.
func goOn(topic string) {
	sender := newProducer("go-producers")
	go func() {
		for i := 0; ; i++ {
			body := "go-" + strconv.Itoa(i)
			result, err := sender.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body)))
			sent(result, err, body)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	reader := collect("go-readers", topic, "*", false, false)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		must(reader.consumer.Shutdown())
		say("restarted")
		reader = collect("go-readers", topic, "*", false, false)
	}
}

func produceAndConsume() {
	everything := collect("clients-all", "clients-plain", "*", false, false)
	tagged := collect("clients-tag", "clients-plain", "red || green", false, false)
	sender := newProducer("clients-producer")
	background := context.Background()
	for i := 0; i < 100; i++ {
		tag := "blue"
		if i%2 == 0 {
			tag = "red"
		}
		body := "sync-" + strconv.Itoa(i)
		message := primitive.NewMessage("clients-plain", []byte(body)).WithTag(tag).WithKeys([]string{"key-" + strconv.Itoa(i)})
		message.WithProperty("number", strconv.Itoa(i))
		result, err := sender.SendSync(background, message)
		sent(result, err, body)
	}
	var answered sync.WaitGroup
	answered.Add(100)
	for i := 0; i < 100; i++ {
		body := "async-" + strconv.Itoa(i)
		message := primitive.NewMessage("clients-plain", []byte(body)).WithTag("green")
		must(sender.SendAsync(background, func(_ context.Context, result *primitive.SendResult, err error) {
			sent(result, err, body)
			answered.Done()
		}, message))
	}
	answered.Wait()
	var batch []*primitive.Message
	for i := 0; i < 50; i++ {
		batch = append(batch, primitive.NewMessage("clients-plain", []byte("batch-"+strconv.Itoa(i))).WithTag("batched"))
	}
	result, err := sender.SendSync(background, batch...)
	sent(result, err, "batch")
	must(sender.SendOneWay(background, primitive.NewMessage("clients-plain", []byte("oneway-0")).WithTag("oneway")))
	large := primitive.NewMessage("clients-plain", []byte(strings.Repeat("twinlog-", 2000))).WithTag("large")
	result, err = sender.SendSync(background, large)
	sent(result, err, "large")
	everything.report("all", 252)
	tagged.report("tagged", 150)
	must(sender.Shutdown())
}

func order() {
	ordered := collect("clients-order", "clients-order", "*", true, false)
	sender := newProducer("clients-order-producer", producer.WithQueueSelector(producer.NewHashQueueSelector()))
	for i := 0; i < 100; i++ {
		shard := "shard" + strconv.Itoa(i%4)
		message := primitive.NewMessage("clients-order", []byte(shard+"-"+strconv.Itoa(i/4))).WithShardingKey(shard)
		_, err := sender.SendSync(context.Background(), message)
		must(err)
	}
	ordered.report("ordered", 100)
	must(sender.Shutdown())
}

func broadcast() {
	one := collect("clients-broadcast", "clients-broadcast", "*", false, true)
	other := collect("clients-broadcast", "clients-broadcast", "*", false, true)
	time.Sleep(2 * time.Second) // Where a new broadcast consumer begins is decided at its first rebalance.
	sender := newProducer("clients-broadcast-producer")
	for i := 0; i < 20; i++ {
		_, err := sender.SendSync(context.Background(), primitive.NewMessage("clients-broadcast", []byte("cast-"+strconv.Itoa(i))))
		must(err)
	}
	one.report("broadcast-one", 20)
	other.report("broadcast-other", 20)
	must(sender.Shutdown())
}

func delay() {
	delayed := collect("clients-delay", "clients-delay", "*", false, false)
	sender := newProducer("clients-delay-producer")
	begin := time.Now()
	_, err := sender.SendSync(context.Background(), primitive.NewMessage("clients-delay", []byte("later")).WithDelayTimeLevel(2))
	must(err)
	delayed.report("delayed", 1)
	say("delay-ms", time.Since(begin).Milliseconds())
	must(sender.Shutdown())
}

type listener struct {
	lock    sync.Mutex
	checked []string
}

func (l *listener) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	number, err := strconv.Atoi(strings.TrimPrefix(string(message.Body), "half-"))
	must(err)
	return []primitive.LocalTransactionState{
		primitive.CommitMessageState, primitive.RollbackMessageState, primitive.UnknowState,
	}[number%3]
}

func (l *listener) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.checked = append(l.checked, string(message.Body))
	return primitive.CommitMessageState
}

func transaction() {
	committed := collect("clients-transaction", "clients-transaction", "*", false, false)
	decide := &listener{}
	sender, err := rocketmq.NewTransactionProducer(decide,
		producer.WithNsResolver(primitive.NewPassthroughResolver(namesrv)),
		producer.WithGroupName("clients-transaction-producer"), producer.WithInstanceName(instance()))
	must(err)
	must(sender.Start())
	for i := 0; i < 12; i++ {
		_, err := sender.SendMessageInTransaction(context.Background(),
			primitive.NewMessage("clients-transaction", []byte("half-"+strconv.Itoa(i))))
		must(err)
	}
	committed.report("committed", 8)
	decide.lock.Lock()
	say("checked", strings.Join(decide.checked, " "))
	decide.lock.Unlock()
	must(sender.Shutdown())
}

// collector keeps bodies in the order in which a push consumer got them.
type collector struct {
	lock     sync.Mutex
	bodies   []string
	consumer rocketmq.PushConsumer
}

func collect(group, topic, tags string, orderly, cast bool) *collector {
	options := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver(namesrv)), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(orderly),
		consumer.WithInstance(instance()),
	}
	if cast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	c := &collector{}
	var err error
	c.consumer, err = rocketmq.NewPushConsumer(options...)
	must(err)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	must(c.consumer.Subscribe(topic, selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			c.lock.Lock()
			defer c.lock.Unlock()
			for _, message := range messages {
				body := string(message.Body)
				if len(body) > 100 {
					body = "large"
				}
				c.bodies = append(c.bodies, body)
				if len(os.Args) > 2 {
					say("got", message.Queue.QueueId, message.QueueOffset, body)
				}
			}
			return consumer.ConsumeSuccess, nil
		}))
	must(c.consumer.Start())
	return c
}

// report says what came, once it is as much as was expected and a moment has passed in which more could have come.
func (c *collector) report(name string, expected int) {
	for deadline := time.Now().Add(wait); c.count() < expected && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(quiet)
	c.lock.Lock()
	say(name, strings.Join(c.bodies, " "))
	c.lock.Unlock()
	must(c.consumer.Shutdown())
}

func (c *collector) count() int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return len(c.bodies)
}

func newProducer(group string, more ...producer.Option) rocketmq.Producer {
	options := append([]producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver(namesrv)), producer.WithGroupName(group),
		producer.WithInstanceName(instance()),
	}, more...)
	sender, err := rocketmq.NewProducer(options...)
	must(err)
	must(sender.Start())
	return sender
}

// instance is a new name: clients of one process share connections, and one consumer's end would be the other's.
func instance() string {
	began++
	return strconv.FormatInt(began, 10)
}

func sent(result *primitive.SendResult, err error, what string) {
	if err != nil {
		say("failed", what, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	status := map[primitive.SendStatus]string{
		primitive.SendOK: "SEND_OK", primitive.SendFlushDiskTimeout: "FLUSH_DISK_TIMEOUT",
		primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT", primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	}[result.Status]
	say("sent", status, what)
}

func say(values ...interface{}) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(values...)
}

func must(err error) {
	if err != nil {
		say("failed", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
}
