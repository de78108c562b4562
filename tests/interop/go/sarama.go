package main

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// saramas writes with sarama, and reads committed messages with it.
func saramas(address, topic string) ([]string, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = topic
	config.Net.MaxOpenRequests = 1
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	first, err := sarama.NewSyncProducer([]string{address}, config)
	if err != nil {
		return nil, err
	}
	defer first.Close()
	for _, one := range transactions {
		if err := begin(first, topic, one.value); err != nil {
			return nil, err
		}
		offset := int64(len(one.value))
		offsets := map[string][]*sarama.PartitionOffsetMetadata{
			topic: {{Partition: 0, Offset: offset}},
		}
		add := func() error { return first.AddOffsetsToTxn(offsets, topic) }
		if err := retried(add); err != nil {
			return nil, err
		}
		end := first.AbortTxn
		if one.commit {
			end = first.CommitTxn
		}
		if err := end(); err != nil {
			return nil, err
		}
	}
	if err := begin(first, topic, "fenced"); err != nil {
		return nil, err
	}
	var second sarama.SyncProducer
	if err := retried(func() error {
		second, err = sarama.NewSyncProducer([]string{address}, config)
		return err
	}); err != nil {
		return nil, err
	}
	defer second.Close()
	slow := *config
	slow.Producer.Transaction.ID += "-late"
	slow.Producer.Transaction.Timeout = lateTimeout
	late, err := sarama.NewSyncProducer([]string{address}, &slow)
	if err != nil {
		return nil, err
	}
	defer late.Close()
	if err := begin(late, topic, "late"); err != nil {
		return nil, err
	}
	if err := begin(second, topic, "end"); err != nil {
		return nil, err
	}
	if err := second.CommitTxn(); err != nil {
		return nil, err
	}
	if err := first.CommitTxn(); err == nil {
		return nil, fmt.Errorf("the first producer is not fenced")
	}
	if err := committed(address, topic, config, int64(len("later"))); err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumer([]string{address}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	var found []string
	for len(found) == 0 || found[len(found)-1] != "end" {
		select {
		case one := <-partition.Messages():
			found = append(found, string(one.Value))
		case <-time.After(time.Minute):
			return nil, fmt.Errorf("no more messages after %v", found)
		}
	}
	if err := late.CommitTxn(); err == nil {
		return nil, fmt.Errorf("the late transaction is committed")
	}
	return found, nil
}

// begin begins a transaction, and writes one message in it.
func begin(producer sarama.SyncProducer, topic, value string) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}
	_, _, err := producer.SendMessage(message)
	return err
}

// committed states the offset that the group named as the topic has committed.
func committed(address, topic string, config *sarama.Config, expected int64) error {
	admin, err := sarama.NewClusterAdmin([]string{address}, config)
	if err != nil {
		return err
	}
	defer admin.Close()
	offsets, err := admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0}})
	if err != nil {
		return err
	}
	if found := offsets.GetBlock(topic, 0).Offset; found != expected {
		return fmt.Errorf("offset %d is committed, not %d", found, expected)
	}
	return nil
}
