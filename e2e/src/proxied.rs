//! The faults of a client process that reaches its servers through its own proxies.

use std::{thread::sleep, time::Duration};

use leasehold_testkit::server::Proxy;

use crate::{workers::Workers, world::Fault};

/// The delay of answers on a slow connection: unusual, but within the time limit of a renewal.
const SLOW: Duration = Duration::from_millis(60);

/// Client processes behind proxies. The longest faults outlast the leases of the engine.
pub(crate) trait Proxied: Sized + 'static {
    /// The longest stop of a process or silence of a connection, in milliseconds.
    const STOPPED: u64;
    /// The longest time in milliseconds for which messages of one direction are held.
    const HELD: u64;

    /// The client processes.
    fn workers(&mut self) -> &mut Workers;

    /// Calls `act` for each proxy of a client.
    fn each(&self, at: usize, act: fn(&Proxy));

    /// The faults.
    const FAULTS: &'static [Fault<Self>] = &[
        Fault {
            name: "stop",
            lasts: 30..Self::STOPPED,
            begin: |w, at| w.workers().stop(at),
            end: |w, at| w.workers().resume(at),
        },
        Fault {
            name: "kill",
            lasts: 1..200,
            begin: |w, at| w.workers().kill(at),
            end: |w, at| w.workers().replace(at),
        },
        Fault {
            name: "cut before the request",
            lasts: 5..200,
            begin: |w, at| w.each(at, Proxy::hold_requests),
            end: |w, at| w.each(at, Proxy::drop_connections),
        },
        // A late request: the connection of the client is cut, and its request arrives later.
        Fault {
            name: "cut after the request",
            lasts: 5..400,
            begin: |w, at| {
                w.each(at, Proxy::hold_requests);
                sleep(Duration::from_millis(2));
                w.each(at, Proxy::cut_clients);
            },
            end: |w, at| w.each(at, Proxy::release_held),
        },
        Fault {
            name: "cut before the reply",
            lasts: 5..200,
            begin: |w, at| w.each(at, Proxy::hold_answers),
            end: |w, at| w.each(at, Proxy::drop_connections),
        },
        Fault {
            name: "requests held",
            lasts: 20..Self::HELD,
            begin: |w, at| w.each(at, Proxy::hold_requests),
            end: |w, at| w.each(at, Proxy::release_held),
        },
        Fault {
            name: "answers held",
            lasts: 20..Self::HELD,
            begin: |w, at| w.each(at, Proxy::hold_answers),
            end: |w, at| w.each(at, Proxy::release_held),
        },
        Fault {
            name: "half-open",
            lasts: 500..Self::STOPPED,
            begin: |w, at| {
                w.each(at, Proxy::hold_requests);
                w.each(at, Proxy::hold_answers);
            },
            end: |w, at| w.each(at, Proxy::drop_connections),
        },
        Fault { name: "reset", lasts: 1..10, begin: |w, at| w.each(at, Proxy::reset), end: |_, _| {} },
        // A delay applies to new connections only, so the old ones are closed.
        Fault {
            name: "slow",
            lasts: 100..800,
            begin: |w, at| {
                w.each(at, |proxy| proxy.delay(SLOW));
                w.each(at, Proxy::drop_connections);
            },
            end: |w, at| {
                w.each(at, |proxy| proxy.delay(Duration::ZERO));
                w.each(at, Proxy::drop_connections);
            },
        },
    ];
}
