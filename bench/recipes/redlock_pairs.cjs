// Locks and unlocks with npm's redlock as often as it gets through, to be compared with.
//
// It is started as `redlock_pairs.cjs PORT` and told line by line `TASKS MILLIS`: each task has a name of its own. It answers each
// line with pairs a second. The end of its input ends it.

const { createInterface } = require('node:readline')
const Redis = require('ioredis')
const { default: Redlock } = require('redlock')

const TTL_MS = 30000

const server = new Redis({ port: Number(process.argv[2]) })
const locks = new Redlock([server])

async function pairs(name, end) {
  let done = 0
  while (performance.now() < end) {
    const lock = await locks.acquire([name], TTL_MS)
    await lock.release()
    done++
  }
  return done
}

async function rate(tasks, millis) {
  const begin = performance.now()
  const names = Array.from({ length: tasks }, (_, task) => 'redlock-' + task)
  const done = await Promise.all(names.map((name) => pairs(name, begin + millis)))
  return (done.reduce((sum, one) => sum + one, 0) * 1000) / (performance.now() - begin)
}

async function main() {
  for await (const line of createInterface({ input: process.stdin })) {
    const [tasks, millis] = line.split(' ').map(Number)
    console.log((await rate(tasks, millis)).toFixed(1))
  }
  server.disconnect()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
