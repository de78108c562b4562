// kafkajs in transactions: one is committed, one aborted, one fenced, and one times out; offsets are
// committed in them. It prints the values that its consumer finds, which reads committed messages only
// and gets to the last one when the transaction before it has timed out.
//
//     node kafkajs_client.mjs HOST:PORT TOPIC
//
// The topic has one partition.

import kafkajs from 'kafkajs'

const { Kafka, logLevel } = kafkajs
const [address, topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [address], logLevel: logLevel.NOTHING })
const settings = { transactionalId: topic, maxInFlightRequests: 1, idempotent: true }
const group = `txn-${topic}`
const first = kafka.producer(settings)
await first.connect()
for (const [value, commit] of [['committed', true], ['aborted', false], ['later', true]]) {
  const transaction = await first.transaction()
  await transaction.send({ topic, messages: [{ value }] })
  const partitions = [{ partition: 0, offset: String(value.length) }]
  await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] })
  await (commit ? transaction.commit() : transaction.abort())
}
const open = await first.transaction()
await open.send({ topic, messages: [{ value: 'fenced' }] })

const second = kafka.producer(settings)
await second.connect()
const last = await second.transaction()
// begun when the first one is aborted: kafkajs shows messages of aborted transactions that overlap
const slow = kafka.producer({ ...settings, transactionalId: `${topic}-late`, transactionTimeout: 1000 })
await slow.connect()
const late = await slow.transaction()
await late.send({ topic, messages: [{ value: 'late' }] })
await last.send({ topic, messages: [{ value: 'end' }] })
await last.commit()
const fenced = await open.commit().then(() => false, () => true)
if (!fenced) throw new Error('the first producer is not fenced')

const admin = kafka.admin()
await admin.connect()
const [{ partitions: [{ offset }] }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
if (offset !== String('later'.length)) throw new Error(`offset ${offset} is committed`)
await admin.disconnect()

const consumer = kafka.consumer({ groupId: topic, readUncommitted: false })
await consumer.connect()
await consumer.subscribe({ topic, fromBeginning: true })
let end
const ended = new Promise(resolve => { end = resolve })
await consumer.run({
  eachMessage: async ({ message }) => {
    console.log(message.value.toString())
    if (message.value.toString() === 'end') end()
  },
})
await ended
const committed = await late.commit().then(() => true, () => false)
if (committed) throw new Error('the late transaction is committed')
for (const one of [consumer, first, second, slow]) await one.disconnect()
