//! A model of the Redis protocol, and a search through everything that may happen to it within bounds.
//!
//! ```text
//! cargo test -p leasehold-model            the small runs, in the order of a minute
//! cargo run --release -p leasehold-model   all runs, with a table; ends with 1 if one is not as expected
//! ```
//!
//! A [`Run`] is a set of rules: who meets on one name, how long things take, what may go wrong and how often. It looks at
//! *every* world that follows from them, nearest first, so a property that breaks comes with a short story of how.
//!
//! # What is modelled
//!
//! * **The server**: the lock key with its value and expiry; the card with the holder and how the last hold ended; the line,
//!   the places in it and those who missed their turn; tombstones; the counter. `server` is `name.lua`, `verbs` the scripts of
//!   the verbs. A test holds them against the pure machine of core.
//! * **Time** in ticks, on the server and in every client. Leases count from before the request left; pushed grants are dated by
//!   what the server's clock said last (R16).
//! * **Clients**, one claim each: they claim, ask, hear pushed grants (before or after the answers that left with them), renew,
//!   lose, release, give up waiting with a request under way, die while they wait, hold or release. Any step may take any
//!   time, so every client may stop for longer than its lease. Where a run has no slow steps, time passes only when there is nothing to do,
//!   and nobody may wait in vain.
//! * **The network**: requests of a connection are served in order. A connection may break, and the server notice late or never;
//!   what was sent on it comes after all, in any order, or never; answers and news are lost. A client may stop waiting for an answer.
//! * **Another program** with the plain token lock, which takes the name between ours.
//! * **The resource** under the lock: read, check, write; without a fence, with one, and with the token shown before the read.
//!
//! # What must hold
//!
//! I1 and I2 by what clients believe, I4, I5, I6, I7, I8, I10, I11 (the numbers are those of `docs/rules.md`), and that the next
//! holder is told of a lapse. Without the fence the run must find the holder that pauses between check and write and
//! overwrites its successor; with a fence but without the seal, the update that is lost before the successor's first write; with
//! both, nothing. [`MISTAKES`] are protocols that are wrong in one point: each must be found. What a run should see on its way
//! (a [`Sight`]) it must see, for a model in which nothing happens proves nothing.
//!
//! # What is not modelled
//!
//! * Shared holds and permits, kept names, breaking by an operator, the gap for other programs, claims that may not wait.
//! * Restarts, fail-over, eviction and steps of the server's clock: they break I1, and `docs/engines/redis.md` says so.
//! * Hand-over inside a process, and the quick parts of the scripts, which must do what the whole scripts do.
//!
//! # Where it is simpler than the scripts
//!
//! * One name, one claim for each client, no new claim after the last: that would be one more client.
//! * All clocks go alike, and no margin is kept: what a margin would hide shows.
//! * The keys of a name beside the lock expire after what they tell of; here they do not expire before.
//! * The server tells the end of a foreign lock (tracking) to nobody: it is found by asking.
//! * A client asks whenever it likes in slow runs, and after the poll or the hint in the others.
//! * A broken connection loses a request no later than `request_life` after it was sent: `REQUEST_LIFE` in `name.lua`.
//!
//! # What it found
//!
//! Three faults of the scripts and of core, which are mended; the protocols that still have them are among the [`MISTAKES`]. All
//! three need a request that comes late, or a release that comes after the lease. None let two hold at once.
//!
//! 1. *Freed out of line.* The release of a hold that was pushed and had lapsed found that its claim missed its turn, removed it
//!    from there, and answered "freed", although another may have held since. It answers "absent".
//! 2. *The other grant stays.* An ask is under way when the connection breaks; the grant comes by push, is believed in, lapses on the
//!    server; the ask comes late and is granted once more, for a whole ttl. The release named the first token, so it left the second
//!    grant alone and buried nothing: nobody held the name until its lease had run out. It ends whatever its claim has.
//! 3. *Gone is trusted.* A claim is granted, but the answer is lost, and its lease lapses: a tombstone. Its second request is under way when that
//!    connection breaks too, the third is told "gone", and core started anew without a release. The second came after the
//!    tombstone's end, and took the name or a place in line for nobody. Core releases what is gone, too.

mod action;
mod bug;
mod client;
mod judge;
mod leaving;
mod look;
mod mistakes;
#[cfg(test)]
mod oracle;
mod properties;
pub mod redlock;
mod resource;
mod rules;
mod runs;
mod server;
mod sights;
mod story;
mod verbs;
mod waiting;
mod wire;
mod world;

use self::{
    action::{Action, Protocol},
    bug::Bug,
    rules::{Id, Ticks},
    world::World,
};
pub use self::{
    look::Found,
    mistakes::MISTAKES,
    rules::Rules,
    runs::{LARGE, Run, SMALL},
    sights::{Sight, Sights},
};
