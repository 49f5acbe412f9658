// A program in JavaScript that locks three servers with a package from npm.
//
// usage: masters.cjs turns KIND PORTS NAME SECTIONS   sections that read and write a counter on the first server
//        masters.cjs hold  KIND PORTS NAME TTL        prints "held", then holds until its standard input ends
//        masters.cjs try   KIND PORTS NAME TTL        tries once; prints "held" or "taken"
//
// TTL is in milliseconds.

const [what, kind, ports, name, number] = process.argv.slice(2)
const Redis = require('ioredis')
const servers = ports.split(',').map(port => new Redis({ port: Number(port) }))
const ttl = what === 'turns' ? 30000 : Number(number)
const settings = { retryCount: what === 'try' ? 0 : -1, retryDelay: 20, retryJitter: 10 }

// Takes a lock with each package; returns the function that releases it.
const take = {
  async redlock4() {
    const Redlock = require('redlock4')
    const lock = await new Redlock(servers, settings).lock('lock:' + name, ttl)
    return () => lock.unlock()
  },
  async redlock5() {
    const { default: Redlock } = require('redlock5')
    const redlock = new Redlock(servers, settings)
    // It emits an error for every node that refuses.
    redlock.on('error', () => {})
    const lock = await redlock.acquire(['lock:' + name], ttl)
    return () => lock.release()
  },
}[kind]

async function section() {
  if ((await servers[0].set('inside', 'javascript', 'NX')) === null) await servers[0].incr('overlaps')
  // Two steps on purpose: an overlap between them loses a count.
  const count = Number((await servers[0].get('count')) ?? 0)
  await servers[0].set('count', count + 1)
  await servers[0].del('inside')
}

async function main() {
  if (what === 'turns') {
    for (let turn = 0; turn < Number(number); turn++) {
      const giveBack = await take()
      await section()
      await giveBack()
    }
  } else if (what === 'try') {
    console.log(await take().then(() => 'held', () => 'taken'))
  } else {
    const giveBack = await take()
    console.log('held')
    for await (const _ of process.stdin);
    await giveBack()
  }
  servers.forEach(server => server.disconnect())
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
