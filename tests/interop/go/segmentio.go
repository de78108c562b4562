package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

// segmentio writes plain messages with kafka-go, whose transactions are of offsets only, and reads
// committed messages in a group.
func segmentio(address, topic string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	writer := &kafka.Writer{Addr: kafka.TCP(address), Topic: topic, RequiredAcks: kafka.RequireAll}
	defer writer.Close()
	for _, value := range []string{"committed", "later", "end"} {
		if err := writer.WriteMessages(ctx, kafka.Message{Value: []byte(value)}); err != nil {
			return nil, err
		}
	}
	client := &kafka.Client{Addr: kafka.TCP(address)}
	first, err := initialize(ctx, client, topic)
	if err != nil {
		return nil, err
	}
	for _, one := range transactions {
		if err := commitOffset(ctx, client, topic, first, int64(len(one.value))); err != nil {
			return nil, err
		}
		ended, err := client.EndTxn(ctx, &kafka.EndTxnRequest{TransactionalID: topic,
			ProducerID: first.ProducerID, ProducerEpoch: first.ProducerEpoch, Committed: one.commit})
		if err != nil || ended.Error != nil {
			return nil, fmt.Errorf("EndTxn: %v %v", err, ended)
		}
	}
	if err := commitOffset(ctx, client, topic, first, 2); err != nil {
		return nil, err
	}
	if _, err := initialize(ctx, client, topic); err != nil {
		return nil, err
	}
	if err := commitOffset(ctx, client, topic, first, 2); err == nil {
		return nil, fmt.Errorf("the first producer is not fenced")
	}
	fetched, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: "txn-" + topic, Topics: map[string][]int{topic: {0}}})
	if err != nil {
		return nil, err
	}
	if found := fetched.Topics[topic][0].CommittedOffset; found != int64(len("later")) {
		return nil, fmt.Errorf("offset %d is committed", found)
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{address}, GroupID: topic,
		Topic: topic, IsolationLevel: kafka.ReadCommitted, StartOffset: kafka.FirstOffset})
	defer reader.Close()
	var found []string
	for len(found) == 0 || found[len(found)-1] != "end" {
		one, err := reader.ReadMessage(ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, string(one.Value))
	}
	return found, nil
}

func initialize(ctx context.Context, client *kafka.Client, id string) (*kafka.ProducerSession, error) {
	var session *kafka.ProducerSession
	err := retried(func() error {
		made, err := client.InitProducerID(ctx, &kafka.InitProducerIDRequest{
			TransactionalID: id, TransactionTimeoutMs: 60_000, ProducerID: -1, ProducerEpoch: -1})
		if err == nil {
			session, err = made.Producer, made.Error
		}
		return err
	})
	return session, err
}

func commitOffset(ctx context.Context, client *kafka.Client, topic string,
	producer *kafka.ProducerSession, offset int64) error {
	group := "txn-" + topic
	if err := retried(func() error {
		added, err := client.AddOffsetsToTxn(ctx, &kafka.AddOffsetsToTxnRequest{
			TransactionalID: topic, GroupID: group,
			ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch})
		if err == nil {
			err = added.Error
		}
		return err
	}); err != nil {
		return err
	}
	committed, err := client.TxnOffsetCommit(ctx, &kafka.TxnOffsetCommitRequest{
		TransactionalID: topic, GroupID: group, GenerationID: -1,
		ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch,
		Topics: map[string][]kafka.TxnOffsetCommit{topic: {{Partition: 0, Offset: offset}}}})
	if err != nil {
		return err
	}
	return committed.Topics[topic][0].Error
}
