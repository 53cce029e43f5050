package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const patience = 20 * time.Second

var (
	producers     = map[string]rocketmq.Producer{}
	transactional = map[string]rocketmq.TransactionProducer{}
	checks        = map[string]int{}
	checksLock    sync.Mutex
)

func startProducer(given command) (answer, error) {
	name := given.text("name", "")
	options := []producer.Option{
		producer.WithNameServer([]string{given.text("namesrv", "")}),
		producer.WithGroupName(given.text("group", "")),
		producer.WithInstanceName(name),
		producer.WithSendMsgTimeout(patience),
		producer.WithRetry(given.number("retries", 2)),
	}
	if given.flag("transactional") {
		made, err := rocketmq.NewTransactionProducer(&verdicts{}, options...)
		if err != nil {
			return nil, err
		}
		transactional[name] = made
		return nil, made.Start()
	}
	options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	producers[name] = made
	return nil, made.Start()
}

func stopProducer(given command) (answer, error) {
	name := given.text("name", "")
	if made, ok := transactional[name]; ok {
		delete(transactional, name)
		return nil, made.Shutdown()
	}
	made := producers[name]
	delete(producers, name)
	return nil, made.Shutdown()
}

func message(given command) *primitive.Message {
	made := primitive.NewMessage(given.text("topic", ""), []byte(given.text("body", "")))
	if tags := given.text("tags", ""); tags != "" {
		made.WithTag(tags)
	}
	if keys := given.text("keys", ""); keys != "" {
		made.WithKeys(strings.Split(keys, " "))
	}
	if delay := given.number("delay", 0); delay > 0 {
		made.WithDelayTimeLevel(delay)
	}
	if order := given.number("order", -1); order >= 0 {
		made.WithShardingKey(fmt.Sprint(order))
	}
	if properties, ok := given["properties"].(map[string]any); ok {
		for key, value := range properties {
			made.WithProperty(key, value.(string))
		}
	}
	return made
}

func described(sent *primitive.SendResult) answer {
	names := map[primitive.SendStatus]string{
		primitive.SendOK: "SEND_OK", primitive.SendFlushDiskTimeout: "FLUSH_DISK_TIMEOUT",
	}
	return answer{
		"status": names[sent.Status], "message_id": sent.MsgID, "offset_message_id": sent.OffsetMsgID,
		"transaction_id": sent.TransactionID, "queue_offset": sent.QueueOffset,
		"topic": sent.MessageQueue.Topic, "broker": sent.MessageQueue.BrokerName, "queue_id": sent.MessageQueue.QueueId,
	}
}

func send(given command) (answer, error) {
	made := producers[given.text("name", "")]
	mode := given.text("mode", "sync")
	messages := given.list("messages")
	results := make([]answer, len(messages))
	var open sync.WaitGroup
	for i, item := range messages {
		switch mode {
		case "oneway":
			results[i] = answer{}
			if err := made.SendOneWay(context.Background(), message(item)); err != nil {
				results[i] = answer{"error": err.Error()}
			}
		case "async":
			open.Add(1)
			place := i
			err := made.SendAsync(context.Background(), func(_ context.Context, sent *primitive.SendResult, err error) {
				if err != nil {
					results[place] = answer{"error": err.Error()}
				} else {
					results[place] = described(sent)
				}
				open.Done()
			}, message(item))
			if err != nil {
				results[place] = answer{"error": err.Error()}
				open.Done()
			}
		default:
			sent, err := made.SendSync(context.Background(), message(item))
			if err != nil {
				results[i] = answer{"error": err.Error()}
			} else {
				results[i] = described(sent)
			}
		}
	}
	open.Wait()
	return answer{"results": results}, nil
}

func sendBatch(given command) (answer, error) {
	var batch []*primitive.Message
	for _, item := range given.list("messages") {
		batch = append(batch, message(item))
	}
	sent, err := producers[given.text("name", "")].SendSync(context.Background(), batch...)
	if err != nil {
		return nil, err
	}
	return described(sent), nil
}

// verdicts answers as the property "verdict" of a message says: its first word locally, its last word to each check.
type verdicts struct{}

func state(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	default:
		return primitive.UnknowState
	}
}

func (*verdicts) ExecuteLocalTransaction(half *primitive.Message) primitive.LocalTransactionState {
	return state(strings.Split(half.GetProperty("verdict"), "-")[0])
}

func (*verdicts) CheckLocalTransaction(half *primitive.MessageExt) primitive.LocalTransactionState {
	checksLock.Lock()
	checks[string(half.Body)]++
	checksLock.Unlock()
	words := strings.Split(half.GetProperty("verdict"), "-")
	return state(words[len(words)-1])
}

func transaction(given command) (answer, error) {
	half := message(command(given["message"].(map[string]any)))
	sent, err := transactional[given.text("name", "")].SendMessageInTransaction(context.Background(), half)
	if err != nil {
		return nil, err
	}
	return described(sent.SendResult), nil
}

func checkCounts(command) (answer, error) {
	checksLock.Lock()
	defer checksLock.Unlock()
	counts := answer{}
	for body, times := range checks {
		counts["of:"+body] = times
	}
	return counts, nil
}
