package main

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// saramaGroup writes a message with each codec, and reads them in a group: two at first, and the
// others in a second session, from the committed offset on.
func saramaGroup(address, topic string) ([]string, error) {
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP,
		sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD}
	for _, codec := range codecs {
		if err := sendOne(address, topic, codec); err != nil {
			return nil, err
		}
	}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	found := []string{}
	for _, most := range []int{2, len(codecs)} {
		group, err := sarama.NewConsumerGroup([]string{address}, topic, config)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		taken := &taking{found: &found, most: most, enough: cancel}
		for ctx.Err() == nil && err == nil {
			err = group.Consume(ctx, []string{topic}, taken)
		}
		cancel()
		if closed := group.Close(); err == nil {
			err = closed
		}
		if err != nil || len(found) != most {
			return nil, fmt.Errorf("read %v: %v", found, err)
		}
	}
	return found, nil
}

func sendOne(address, topic string, codec sarama.CompressionCodec) error {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Compression = codec
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer([]string{address}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(codec.String())}
	_, _, err = producer.SendMessage(message)
	return err
}

// taking reads until it has found enough, and commits each message.
type taking struct {
	found  *[]string
	most   int
	enough func()
}

func (t *taking) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (t *taking) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (t *taking) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open || len(*t.found) == t.most {
				return nil
			}
			*t.found = append(*t.found, string(message.Value))
			session.MarkMessage(message, "")
			session.Commit()
			if len(*t.found) == t.most {
				t.enough()
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}
