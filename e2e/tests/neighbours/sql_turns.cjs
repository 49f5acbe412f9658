// A program that shares a lock of a PostgreSQL session with other programs, and records its sections.
//
// usage: sql_turns.cjs KIND PORT NAME TTL DIRECTORY WHO
//
// KIND is the package advisory-lock or pg-mutex-lock. TTL has no effect: a session holds until it ends. All programs
// share the directory: see e2e/src/turns.rs.

const fs = require("node:fs");
const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");

const [kind, port, name, , directory, who] = process.argv.slice(2);
const side = who.split("-")[0];
const journal = fs.openSync(path.join(directory, "journal"), "a");

function lingers() {
  try {
    return fs.readFileSync(path.join(directory, "linger"), "utf8") === side;
  } catch {
    return false;
  }
}

/** Tries to acquire the lock, and returns the function that releases it, or nothing. */
function tryLock() {
  if (kind === "advisory-lock") {
    const lock = require("advisory-lock").default(`postgres://postgres@127.0.0.1:${port}/postgres`)(name);
    return () => lock.tryLock();
  }
  const PGMutexLock = require("pg-mutex-lock").default;
  const database = { host: "127.0.0.1", port: Number(port), user: "postgres", password: "none", database: "postgres" };
  const lock = new PGMutexLock({ database, timeout: 1, retryCount: 1 });
  return () => lock.acquireLock(name).then(() => () => lock.releaseLock(name), () => undefined);
}

async function main() {
  const attempt = tryLock();
  while (!fs.existsSync(path.join(directory, "over"))) {
    const release = await attempt();
    if (!release) {
      await sleep(20);
      continue;
    }
    fs.writeSync(journal, `enter ${who} -\n`);
    while (lingers()) await sleep(10);
    fs.writeSync(journal, `leave ${who} held\n`);
    await release();
    await sleep(2);
  }
  process.exit(0);
}

main();
