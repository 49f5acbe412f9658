//! What may happen to a client process that reaches its servers through proxies of its own.

use std::{thread::sleep, time::Duration};

use leasehold_testkit::server::Proxy;

use crate::{workers::Workers, world::Fault};

/// How late answers are on a slow connection: beyond what is usual, within what a renewal may take.
const SLOW: Duration = Duration::from_millis(60);

/// Clients that are processes behind proxies. Times are in milliseconds, and reach beyond the leases of their engine.
pub(crate) trait Proxied: Sized + 'static {
    /// For how long a process is stopped, or nothing comes through, at most.
    const STOPPED: u64;
    /// For how long what one side says is held at most.
    const HELD: u64;

    /// The processes.
    fn workers(&mut self) -> &mut Workers;

    /// Does this to each proxy of a client.
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
            end: |w, at| w.each(at, Proxy::lose),
        },
        // The client gives up, and its request arrives later.
        Fault {
            name: "cut after the request",
            lasts: 5..400,
            begin: |w, at| {
                w.each(at, Proxy::hold_requests);
                sleep(Duration::from_millis(2));
                w.each(at, Proxy::cut_clients);
            },
            end: |w, at| w.each(at, Proxy::let_go),
        },
        Fault {
            name: "cut before the reply",
            lasts: 5..200,
            begin: |w, at| w.each(at, Proxy::hold_answers),
            end: |w, at| w.each(at, Proxy::lose),
        },
        Fault {
            name: "requests held",
            lasts: 20..Self::HELD,
            begin: |w, at| w.each(at, Proxy::hold_requests),
            end: |w, at| w.each(at, Proxy::let_go),
        },
        Fault {
            name: "answers held",
            lasts: 20..Self::HELD,
            begin: |w, at| w.each(at, Proxy::hold_answers),
            end: |w, at| w.each(at, Proxy::let_go),
        },
        Fault {
            name: "half-open",
            lasts: 500..Self::STOPPED,
            begin: |w, at| {
                w.each(at, Proxy::hold_requests);
                w.each(at, Proxy::hold_answers);
            },
            end: |w, at| w.each(at, Proxy::lose),
        },
        Fault { name: "reset", lasts: 1..10, begin: |w, at| w.each(at, Proxy::reset), end: |_, _| {} },
        // A delay is of connections to come.
        Fault {
            name: "slow",
            lasts: 100..800,
            begin: |w, at| {
                w.each(at, |proxy| proxy.delay(SLOW));
                w.each(at, Proxy::lose);
            },
            end: |w, at| {
                w.each(at, |proxy| proxy.delay(Duration::ZERO));
                w.each(at, Proxy::lose);
            },
        },
    ];
}
