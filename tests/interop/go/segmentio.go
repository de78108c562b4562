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
	first, err := initialize(ctx, client, topic, time.Minute)
	if err != nil {
		return nil, err
	}
	for _, one := range transactions {
		if err := commitOffset(ctx, client, topic, topic, first, int64(len(one.value))); err != nil {
			return nil, err
		}
		ended, err := client.EndTxn(ctx, &kafka.EndTxnRequest{TransactionalID: topic,
			ProducerID: first.ProducerID, ProducerEpoch: first.ProducerEpoch, Committed: one.commit})
		if err != nil || ended.Error != nil {
			return nil, fmt.Errorf("EndTxn: %v %v", err, ended)
		}
	}
	if err := commitOffset(ctx, client, topic, topic, first, 2); err != nil {
		return nil, err
	}
	if _, err := initialize(ctx, client, topic, time.Minute); err != nil {
		return nil, err
	}
	if err := commitOffset(ctx, client, topic, topic, first, 2); err == nil {
		return nil, fmt.Errorf("the first producer is not fenced")
	}
	if found, err := fetchOffset(ctx, client, topic, topic); err != nil || found != int64(len("later")) {
		return nil, fmt.Errorf("offset %d is committed: %v", found, err)
	}
	if err := timeOut(ctx, client, topic, topic+"-late"); err != nil {
		return nil, err
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

// timeOut leaves a transaction open until its producer is fenced. Its offset must not be committed.
func timeOut(ctx context.Context, client *kafka.Client, topic, id string) error {
	late, err := initialize(ctx, client, id, lateTimeout)
	if err != nil {
		return err
	}
	begun := false
	for commitOffset(ctx, client, topic, id, late, 3) == nil {
		begun = true
		time.Sleep(100 * time.Millisecond)
	}
	if !begun || ctx.Err() != nil {
		return fmt.Errorf("the late transaction does not time out: %v", ctx.Err())
	}
	if found, err := fetchOffset(ctx, client, topic, id); err != nil || found != -1 {
		return fmt.Errorf("offset %d of the late transaction is committed: %v", found, err)
	}
	return nil
}

func fetchOffset(ctx context.Context, client *kafka.Client, topic, id string) (int64, error) {
	fetched, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: "txn-" + id, Topics: map[string][]int{topic: {0}}})
	if err != nil {
		return 0, err
	}
	return fetched.Topics[topic][0].CommittedOffset, nil
}

func initialize(ctx context.Context, client *kafka.Client, id string,
	timeout time.Duration) (*kafka.ProducerSession, error) {
	var session *kafka.ProducerSession
	err := retried(func() error {
		made, err := client.InitProducerID(ctx, &kafka.InitProducerIDRequest{
			TransactionalID: id, TransactionTimeoutMs: int(timeout.Milliseconds()),
			ProducerID:      -1, ProducerEpoch: -1})
		if err == nil {
			session, err = made.Producer, made.Error
		}
		return err
	})
	return session, err
}

func commitOffset(ctx context.Context, client *kafka.Client, topic, id string,
	producer *kafka.ProducerSession, offset int64) error {
	group := "txn-" + id
	if err := retried(func() error {
		added, err := client.AddOffsetsToTxn(ctx, &kafka.AddOffsetsToTxnRequest{
			TransactionalID: id, GroupID: group,
			ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch})
		if err == nil {
			err = added.Error
		}
		return err
	}); err != nil {
		return err
	}
	committed, err := client.TxnOffsetCommit(ctx, &kafka.TxnOffsetCommitRequest{
		TransactionalID: id, GroupID: group, GenerationID: -1,
		ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch,
		Topics: map[string][]kafka.TxnOffsetCommit{topic: {{Partition: 0, Offset: offset}}}})
	if err != nil {
		return err
	}
	return committed.Topics[topic][0].Error
}
