// Measures how often npm's redlock locks and unlocks, as a comparison.
//
// It is started as `redlock_pairs.cjs PORT` and reads lines of `TASKS MILLIS`: each task has its own name. It answers
// each line with pairs per second. It ends at the end of its input.

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
