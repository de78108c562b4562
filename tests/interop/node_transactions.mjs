// @platformatic/kafka in transactions: one is committed, one aborted, and one committed after it.
//
//     node node_transactions.mjs HOST:PORT TOPIC
//
// The topic has one partition.

import { Producer, stringSerializers } from '@platformatic/kafka'

const [address, topic] = process.argv.slice(2)
const producer = new Producer({
  clientId: 'node',
  bootstrapBrokers: [address],
  serializers: stringSerializers,
  idempotent: true,
  transactionalId: topic,
})
for (const [value, commit] of [['committed', true], ['aborted', false], ['later', true]]) {
  const transaction = await producer.beginTransaction()
  await transaction.send({ messages: [{ topic, value, partition: 0 }] })
  await (commit ? transaction.commit() : transaction.abort())
}
await producer.close()
console.log('done')
