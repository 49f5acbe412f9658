//! A model of the Redis protocol, and a search through every sequence of events within bounds.
//!
//! ```text
//! cargo test -p leasehold-model            the small runs, in the order of a minute
//! cargo run --release -p leasehold-model   all runs, with a table; ends with 1 if one is not as expected
//! ```
//!
//! A [`Run`] is a set of rules: which clients compete for one name, how long things take, which faults may happen and
//! how often. The search visits *every* world that is reachable under the rules, nearest first, so a broken property
//! comes with a short story of the steps to it.
//!
//! # What is modelled
//!
//! * **The server**: the lock key with its value and expiry; the record of the holder and of how the last hold ended;
//!   the queue, its entries, and the claims that missed their grant; tombstones; the counter. `server` is `name.lua`,
//!   `verbs` the scripts of the verbs. A test compares them with the pure machine of core.
//! * **Time** in ticks, on the server and in every client. Leases count from before the request left; pushed grants are
//!   dated by the server's last known clock (R16).
//! * **Clients**, one claim each: they claim, ask, receive pushed grants (before or after the answers that left with
//!   them), renew, lose, release, give up waiting with a request in flight, and die while they wait, hold or release.
//!   Any step may take any time, so every client may stop for longer than its lease. In a run without slow steps, time
//!   passes only when nothing else can happen, and no client may wait in vain.
//! * **The network**: requests of a connection are served in order. A connection may break, and the server may notice
//!   late or never; requests on a broken connection arrive later, in any order, or never; answers and notifications are
//!   lost. A client may stop waiting for an answer.
//! * **Another program** with the plain token lock, which takes the name between our holds.
//! * **The resource** under the lock: read, check, write; without a fence, with one, and with the token shown before
//!   the read.
//!
//! # What must hold
//!
//! I1 and I2 by what clients know, I4, I5, I6, I7, I8, I10, I11 (the numbers are those of `docs/rules.md`), and that
//! the next holder is notified of a lapse. Without the fence the run must find the holder that pauses between check and
//! write and overwrites its successor; with a fence but without the seal, the update that is lost before the
//! successor's first write; with both, nothing. [`MISTAKES`] are protocols with one mistake each: the search must find
//! each of them. A run must also see the events that it is expected to see on its way (an [`Event`]), because a model
//! in which nothing happens proves nothing.
//!
//! # What is not modelled
//!
//! * Shared holds and permits, minimum hold times, breaking by an operator, the gap for other programs,
//!   claims that may not wait.
//! * Restarts, fail-over, eviction and steps of the server's clock: they break I1, and `docs/engines/redis.md` says so.
//! * Hand-over inside a process, and the fast paths of the scripts, which must do the same as the whole scripts.
//!
//! # Where it is simpler than the scripts
//!
//! * One name, and one claim for each client: a second claim of a client would be the same as one more client.
//! * All clocks run at the same rate, and there is no margin: an error that a margin would hide shows.
//! * The keys of a name beside the lock expire after the facts that they record; here they do not expire before.
//! * The server does not report the end of a foreign lock (tracking) to any client: clients find out by asking.
//! * A client may ask at any time in slow runs, and after the poll interval or the hint in the others.
//! * A request on a broken connection arrives no later than `request_life` after it was sent: `REQUEST_LIFE` in
//!   `name.lua`.
//!
//! # What it found
//!
//! Three faults of the scripts and of core, which are fixed; the protocols with these faults are among the
//! [`MISTAKES`]. All three need a late request, or a release that arrives after the lease. None lets two claims hold at
//! once.
//!
//! 1. *Freed out of order.* The release of a hold that was pushed and had lapsed found that its claim had missed its
//!    grant, removed that record, and answered "freed", although another claim may have held since. It now answers
//!    "absent".
//! 2. *The other grant stays.* An ask is in flight when the connection breaks; the grant arrives by push, becomes
//!    valid, and lapses on the server; the ask arrives late and is granted once more, for a whole ttl. The release
//!    named the first token, so it left the second grant in place and left no tombstone: the name stayed blocked
//!    without a holder until the second lease ran out. The release now ends everything that its claim has.
//! 3. *Gone is trusted.* A claim is granted, but the answer is lost, and its lease lapses: a tombstone. Its second
//!    request is in flight when that connection breaks too, the third is answered "gone", and core started again
//!    without a release. The second request arrived after the tombstone's end, and took the name or a queue entry for
//!    no client. Core now also releases a claim that is gone.

mod action;
pub mod block;
mod bug;
mod client;
mod events;
mod judge;
mod leaving;
mod mistakes;
#[cfg(test)]
mod oracle;
mod properties;
pub mod redlock;
mod resource;
mod rules;
mod runs;
mod search;
mod server;
mod small_search;
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
    events::{Event, EventCounts},
    mistakes::MISTAKES,
    rules::Rules,
    runs::{LARGE, Run, SMALL},
    search::SearchResult,
};
