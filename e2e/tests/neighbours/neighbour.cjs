// A program in JavaScript that locks with a package from npm.
//
// usage: neighbour.cjs turns KIND PORT NAME SECTIONS   sections that read and write a counter
//        neighbour.cjs hold  KIND PORT NAME            prints "held", then holds until its standard input ends

const [what, kind, port, name, sections] = process.argv.slice(2)
const Redis = require('ioredis')
const server = new Redis({ port: Number(port) })

// Takes a lock with each package; returns the function that releases it.
const take = {
  async redlock4() {
    const Redlock = require('redlock4')
    const redlock = new Redlock([server], { retryCount: -1, retryDelay: 20, retryJitter: 10 })
    const lock = await redlock.lock('lock:' + name, 30000)
    return () => lock.unlock()
  },
  async redlock5() {
    const { default: Redlock } = require('redlock5')
    const redlock = new Redlock([server], { retryCount: -1, retryDelay: 20, retryJitter: 10 })
    const lock = await redlock.acquire(['lock:' + name], 30000)
    return () => lock.release()
  },
  async mutex() {
    const { Mutex } = require('redis-semaphore')
    const mutex = new Mutex(server, name, { lockTimeout: 30000, acquireTimeout: 600000, retryInterval: 20 })
    await mutex.acquire()
    return () => mutex.release()
  },
  async semaphore() {
    const { Semaphore } = require('redis-semaphore')
    const semaphore = new Semaphore(server, name, 1, { lockTimeout: 30000 })
    await semaphore.acquire()
    return () => semaphore.release()
  },
}[kind]

async function section() {
  if ((await server.set('inside', 'javascript', 'NX')) === null) await server.incr('overlaps')
  // Two steps on purpose: an overlap between them loses a count.
  const count = Number((await server.get('count')) ?? 0)
  await server.set('count', count + 1)
  await server.del('inside')
}

async function main() {
  if (what === 'turns') {
    for (let turn = 0; turn < Number(sections); turn++) {
      const giveBack = await take()
      await section()
      await giveBack()
    }
  } else {
    const giveBack = await take()
    console.log('held')
    for await (const _ of process.stdin);
    await giveBack()
  }
  server.disconnect()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
