// Go's clients in transactions: one is committed, one aborted, one fenced, and one times out. And
// sarama in a group, which prints what it reads.
//
//	interop CLIENT HOST:PORT TOPIC
//
// It prints the values that a reader of committed messages finds in partition 0, one on a line.
// Rules: the topic has one partition; the last message of each client is "end". A reader gets to it
// when the transaction before it has timed out.
package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
)

// The transactions of each client, and how they end.
var transactions = []struct {
	value  string
	commit bool
}{{"committed", true}, {"aborted", false}, {"later", true}}

// lateTimeout is the timeout of a transaction that its producer leaves open.
const lateTimeout = time.Second

func main() {
	client, address, topic := os.Args[1], os.Args[2], os.Args[3]
	run := map[string]func(string, string) ([]string, error){
		"franz-go": franz, "sarama": saramas, "kafka-go": segmentio, "sarama-group": saramaGroup,
	}[client]
	found, err := run(address, topic)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, value := range found {
		fmt.Println(value)
	}
}

// retried repeats what Apache Kafka refuses while the last transaction completes. franz-go does it
// by itself.
func retried(act func() error) error {
	end := time.Now().Add(time.Minute)
	for {
		err := act()
		busy := errors.Is(err, sarama.ErrConcurrentTransactions) ||
			errors.Is(err, kafka.ConcurrentTransactions)
		if !busy || time.Now().After(end) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
