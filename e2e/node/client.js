// One kafkajs operation per run: node client.js OP, arguments as JSON on
// standard input, the result as JSON on standard output.
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const args = JSON.parse(require('fs').readFileSync(0, 'utf8'))
const kafka = new Kafka({ clientId: 'e2e', brokers: [args.addr], logLevel: logLevel.ERROR, retry: { initialRetryTime: 50, retries: 8 } })
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }
const bytes = (s) => (s === null ? null : Buffer.from(s, 'base64'))
const text = (b) => (b === null || b === undefined ? null : b.toString('base64'))

function headersOut(headers) {
  const out = []
  for (const [key, value] of Object.entries(headers || {})) {
    for (const v of Array.isArray(value) ? value : [value]) out.push({ key, value: text(v) })
  }
  return out
}

const ops = {
  async createTopic() {
    const admin = kafka.admin()
    await admin.connect()
    const created = await admin.createTopics({ topics: [{ topic: args.topic, numPartitions: args.partitions }], waitForLeaders: true })
    await admin.disconnect()
    if (!created) throw new Error('the topic existed')
  },
  async produce() {
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    const messages = args.records.map((r) => {
      const headers = {}
      for (const h of r.headers || []) (headers[h.key] ||= []).push(bytes(h.value))
      return { partition: r.partition, key: bytes(r.key), value: bytes(r.value), timestamp: String(r.time), headers }
    })
    await producer.send({ topic: args.topic, acks: -1, compression: codecs[args.codec], messages })
    await producer.disconnect()
  },
  async group() {
    const consumer = kafka.consumer({ groupId: args.group, sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTimeInMs: 100 })
    const got = []
    await consumer.connect()
    await consumer.subscribe({ topic: args.topic, fromBeginning: true })
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, (e) => reject(e.payload.error))
      consumer.run({
        autoCommitThreshold: 1,
        eachMessage: async ({ partition, message }) => {
          got.push({ partition, offset: message.offset, time: message.timestamp, key: text(message.key), value: text(message.value), headers: headersOut(message.headers) })
          if (got.length === args.n) resolve()
        },
      })
    })
    await consumer.commitOffsets([...new Set(got.map((r) => r.partition))].map((p) => ({
      topic: args.topic, partition: p, offset: String(1 + Math.max(...got.filter((r) => r.partition === p).map((r) => Number(r.offset)))) })))
    await consumer.disconnect()
    return got
  },
  async transaction() {
    const producer = kafka.producer({ transactionalId: args.id, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    for (const [value, commit] of args.steps) {
      const txn = await producer.transaction()
      await txn.send({ topic: args.topic, messages: [{ value }] })
      await (commit ? txn.commit() : txn.abort())
    }
    await producer.disconnect()
  },
}

ops[process.argv[2]]().then(
  (result) => process.stdout.write(JSON.stringify(result ?? null), () => process.exit(0)),
  (err) => { console.error(err); process.exit(1) },
)
