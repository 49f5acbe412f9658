// A program that shares a lock of etcd3 (npm) with other programs, and records its sections.
//
// usage: etcd.cjs PORT KEY TTL DIRECTORY WHO
//
// TTL is in milliseconds. All programs share the directory: see e2e/src/turns.rs.

const fs = require('fs')
const path = require('path')
const { Etcd3, EtcdLockFailedError } = require('etcd3')

const [port, key, ttl, directory, who] = process.argv.slice(2)
const client = new Etcd3({ hosts: `127.0.0.1:${port}` })
const journal = fs.openSync(path.join(directory, 'journal'), 'a')
const sleep = (millis) => new Promise((resolve) => setTimeout(resolve, millis))

function lingers() {
  try {
    return fs.readFileSync(path.join(directory, 'linger'), 'utf8') === who.split('-')[0]
  } catch {
    return false
  }
}

// The package keeps the lease of a lock alive. An event of the lease reports that it is lost.
async function section(lock) {
  let how = 'held'
  const begun = Date.now()
  lock.lease.on('lost', () => (how = 'slept'))
  fs.writeSync(journal, `enter ${who} -\n`)
  while (lingers() && how === 'held' && Date.now() - begun < Number(ttl)) await sleep(10)
  fs.writeSync(journal, `leave ${who} ${how}\n`)
}

async function main() {
  while (!fs.existsSync(path.join(directory, 'over'))) {
    const lock = client.lock(key).ttl(Math.floor(Number(ttl) / 1000))
    try {
      await lock.acquire()
    } catch (error) {
      if (!(error instanceof EtcdLockFailedError)) throw error
      await sleep(5)
      continue
    }
    await section(lock)
    await lock.release()
    await sleep(2)
  }
  client.close()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
