// @platformatic/kafka, which names topics by their ids only: it creates a topic, produces to it,
// consumes it in a group, deletes it, and does that once more with a topic of the same name.
//
//     node node_client.mjs HOST:PORT TOPIC COUNT

import { setTimeout } from 'node:timers/promises'
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const [address, topic, count] = [process.argv[2], process.argv[3], Number(process.argv[4])]
const common = { clientId: 'node', bootstrapBrokers: [address] }
const admin = new Admin(common)
const ids = new Set()

// the coordinator of the first groups of a cluster may still open the topic of the offsets
async function consume (consumer) {
  for (;;) {
    try {
      return await consumer.consume({ topics: [topic], mode: 'earliest', maxWaitTime: 500 })
    } catch (error) {
      if (!error.findBy?.('apiId', 'NOT_COORDINATOR')) throw error
      await setTimeout(100)
    }
  }
}

for (let round = 0; round < 2; round++) {
  const [created] = await admin.createTopics({ topics: [topic], partitions: 2, replicas: 1 })
  ids.add(created.id)
  const producer = new Producer({ ...common, serializers: stringSerializers })
  const messages = Array.from({ length: count }, (_, n) => ({ topic, key: `k${n}`, value: `${round}-${n}` }))
  await producer.send({ messages })
  await producer.close()
  const consumer = new Consumer({ ...common, groupId: `${topic}-${round}`, deserializers: stringDeserializers })
  const stream = await consume(consumer)
  const found = new Set()
  for await (const message of stream) {
    found.add(message.value)
    if (found.size === count) break
  }
  await consumer.close(true)
  if (messages.some(message => !found.has(message.value))) throw new Error(`${[...found]}`)
  await admin.deleteTopics({ topics: [topic] })
  if ((await admin.listTopics()).includes(topic)) throw new Error('the topic is still there')
}
await admin.close()
if (ids.size !== 2) throw new Error(`a topic that was created again has the same id: ${[...ids]}`)
console.log('done')
