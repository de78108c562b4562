package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franz writes with franz-go, and reads committed messages with it.
func franz(address, topic string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	seeds := kgo.SeedBrokers(address)
	open := func() (*kgo.Client, error) {
		return kgo.NewClient(seeds, kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
	}
	first, err := open()
	if err != nil {
		return nil, err
	}
	defer first.Close()
	for _, one := range transactions {
		if err := first.BeginTransaction(); err != nil {
			return nil, err
		}
		if err := first.ProduceSync(ctx, kgo.StringRecord(one.value)).FirstErr(); err != nil {
			return nil, err
		}
		if err := first.EndTransaction(ctx, kgo.TransactionEndTry(one.commit)); err != nil {
			return nil, err
		}
	}
	if err := first.BeginTransaction(); err != nil {
		return nil, err
	}
	if err := first.ProduceSync(ctx, kgo.StringRecord("fenced")).FirstErr(); err != nil {
		return nil, err
	}
	second, err := open()
	if err != nil {
		return nil, err
	}
	defer second.Close()
	late, err := kgo.NewClient(seeds, kgo.TransactionalID(topic+"-late"),
		kgo.DefaultProduceTopic(topic), kgo.TransactionTimeout(lateTimeout))
	if err != nil {
		return nil, err
	}
	defer late.Close()
	if err := late.BeginTransaction(); err != nil {
		return nil, err
	}
	if err := late.ProduceSync(ctx, kgo.StringRecord("late")).FirstErr(); err != nil {
		return nil, err
	}
	if err := second.BeginTransaction(); err != nil {
		return nil, err
	}
	if err := second.ProduceSync(ctx, kgo.StringRecord("end")).FirstErr(); err != nil {
		return nil, err
	}
	if err := second.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return nil, err
	}
	err = first.EndTransaction(ctx, kgo.TryCommit)
	if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
		return nil, fmt.Errorf("the first producer is not fenced: %w", err)
	}
	reader, err := kgo.NewClient(seeds, kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var found []string
	for len(found) == 0 || found[len(found)-1] != "end" {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(one *kgo.Record) { found = append(found, string(one.Value)) })
	}
	if err := late.EndTransaction(ctx, kgo.TryCommit); err == nil {
		return nil, fmt.Errorf("the late transaction is committed")
	}
	return found, nil
}
