package main

import (
	"context"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

type running struct {
	consumer rocketmq.PushConsumer
	lock     sync.Mutex
	seen     []answer
	failures int
}

var consumers = map[string]*running{}

func startConsumer(given command) (answer, error) {
	name := given.text("name", "")
	options := []consumer.Option{
		consumer.WithNameServer([]string{given.text("namesrv", "")}),
		consumer.WithGroupName(given.text("group", "")),
		consumer.WithInstance(name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(given.flag("orderly")),
	}
	if given.flag("broadcast") {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if times := given.number("max_reconsume", -1); times >= 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(int32(times)))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	kept := &running{consumer: made, failures: given.number("failures", 0)}
	level := given.number("retry_level", 0)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: given.text("tags", "*")}
	if sql := given.text("sql", ""); sql != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	err = made.Subscribe(given.text("topic", ""), selector,
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if context, ok := primitive.GetConcurrentlyCtx(ctx); ok && level > 0 {
				context.DelayLevelWhenNextConsume = level
			}
			return kept.take(messages), nil
		})
	if err != nil {
		return nil, err
	}
	consumers[name] = kept
	return nil, made.Start()
}

func (r *running) take(messages []*primitive.MessageExt) consumer.ConsumeResult {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, got := range messages {
		properties := got.GetProperties()
		r.seen = append(r.seen, answer{
			"topic": got.Topic, "queue_id": got.Queue.QueueId, "queue_offset": got.QueueOffset,
			"physical_offset": got.CommitLogOffset, "message_id": got.MsgId, "tags": got.GetTags(),
			"keys": got.GetKeys(), "reconsume_times": got.ReconsumeTimes, "sys_flag": got.SysFlag,
			"body": string(got.Body), "properties": properties, "at": time.Now().UnixMilli(),
		})
	}
	if r.failures > 0 {
		r.failures--
		return consumer.ConsumeRetryLater
	}
	return consumer.ConsumeSuccess
}

func (r *running) answer() answer {
	r.lock.Lock()
	defer r.lock.Unlock()
	return answer{"messages": append([]answer{}, r.seen...)}
}

func received(given command) (answer, error) {
	kept := consumers[given.text("name", "")]
	end := time.Now().Add(time.Duration(given.number("timeout_ms", 30_000)) * time.Millisecond)
	for {
		now := kept.answer()
		if len(now["messages"].([]answer)) >= given.number("count", 1) || time.Now().After(end) {
			return now, nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func stopConsumer(given command) (answer, error) {
	name := given.text("name", "")
	kept := consumers[name]
	delete(consumers, name)
	err := kept.consumer.Shutdown()
	return kept.answer(), err
}
