// kafkajs without transactions: it creates a topic, writes with both codecs that it ships, reads in a group, resumes
// at the committed offset, and deletes group and topic. It prints the values that it read, one on a line.
//
//     node kafkajs_everyday.mjs HOST:PORT TOPIC

import kafkajs from 'kafkajs'

const { CompressionTypes, Kafka, logLevel } = kafkajs
const [address, topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [address], logLevel: logLevel.NOTHING })
const admin = kafka.admin()
await admin.connect()
await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true })

const producer = kafka.producer()
await producer.connect()
for (const [codec, compression] of [['none', CompressionTypes.None], ['gzip', CompressionTypes.GZIP]]) {
  const messages = [0, 1, 2].map(n => ({ key: 'k', value: `${codec}-${n}`, headers: { h: 'v' } }))
  await producer.send({ topic, compression, acks: -1, messages })
}
await producer.disconnect()

async function read (last) {
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise(resolve => consumer.run({
    autoCommit: false,
    eachMessage: async ({ message, pause }) => {
      if (message.key.toString() !== 'k' || message.headers.h.toString() !== 'v') throw new Error('another message')
      console.log(message.value.toString())
      if (message.value.toString() !== last) return
      pause()
      await consumer.commitOffsets([{ topic, partition: 0, offset: String(Number(message.offset) + 1) }])
      resolve()
    },
  }))
  await consumer.disconnect()
}

await read('gzip-0')
const [{ partitions: [{ offset }] }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
if (offset !== '4') throw new Error(`offset ${offset} is committed`)
await read('gzip-2')
await admin.deleteGroups([topic])
await admin.deleteTopics({ topics: [topic] })
await admin.disconnect()
