//! The faults of a client process that has its own proxy for each server.

use std::{thread::sleep, time::Duration};

use leasehold_testkit::server::Proxy;

use crate::{workers::Workers, world::Fault};

/// The delay of answers on a slow connection: longer than on a usual connection, but shorter than the time limit of a
/// renewal.
const SLOW: Duration = Duration::from_millis(60);

/// Client processes behind proxies. The longest faults last longer than the leases of the engine.
pub(crate) trait Proxied: Sized + 'static {
    /// The longest time in milliseconds for which a process is stopped or a connection is silent.
    const MAX_STOP: u64;
    /// The longest time in milliseconds for which a proxy holds the messages of one direction.
    const MAX_HOLD_BACK: u64;

    /// The client processes.
    fn workers(&mut self) -> &mut Workers;

    /// Calls `act` for each proxy of a client.
    fn for_each_proxy(&self, client: usize, act: fn(&Proxy));

    /// The faults.
    const FAULTS: &'static [Fault<Self>] = &[
        Fault {
            name: "stop",
            lasts: 30..Self::MAX_STOP,
            begin: |w, client| w.workers().stop(client),
            end: |w, client| w.workers().resume(client),
        },
        Fault {
            name: "kill",
            lasts: 1..200,
            begin: |w, client| w.workers().kill(client),
            end: |w, client| w.workers().replace(client),
        },
        Fault {
            name: "cut before the request",
            lasts: 5..200,
            begin: |w, client| w.for_each_proxy(client, Proxy::hold_requests),
            end: |w, client| w.for_each_proxy(client, Proxy::drop_connections),
        },
        // This fault makes a late request: the connection of the client is cut, and a request that it sent before
        // arrives later.
        Fault {
            name: "cut after the request",
            lasts: 5..400,
            begin: |w, client| {
                w.for_each_proxy(client, Proxy::hold_requests);
                sleep(Duration::from_millis(2));
                w.for_each_proxy(client, Proxy::cut_clients);
            },
            end: |w, client| w.for_each_proxy(client, Proxy::release_held),
        },
        Fault {
            name: "cut before the reply",
            lasts: 5..200,
            begin: |w, client| w.for_each_proxy(client, Proxy::hold_answers),
            end: |w, client| w.for_each_proxy(client, Proxy::drop_connections),
        },
        Fault {
            name: "requests held",
            lasts: 20..Self::MAX_HOLD_BACK,
            begin: |w, client| w.for_each_proxy(client, Proxy::hold_requests),
            end: |w, client| w.for_each_proxy(client, Proxy::release_held),
        },
        Fault {
            name: "answers held",
            lasts: 20..Self::MAX_HOLD_BACK,
            begin: |w, client| w.for_each_proxy(client, Proxy::hold_answers),
            end: |w, client| w.for_each_proxy(client, Proxy::release_held),
        },
        Fault {
            name: "half-open",
            lasts: 500..Self::MAX_STOP,
            begin: |w, client| {
                w.for_each_proxy(client, Proxy::hold_requests);
                w.for_each_proxy(client, Proxy::hold_answers);
            },
            end: |w, client| w.for_each_proxy(client, Proxy::drop_connections),
        },
        Fault {
            name: "reset",
            lasts: 1..10,
            begin: |w, client| w.for_each_proxy(client, Proxy::reset),
            end: |_, _| {},
        },
        // A delay applies to new connections only, so the existing ones are closed.
        Fault {
            name: "slow",
            lasts: 100..800,
            begin: |w, client| {
                w.for_each_proxy(client, |proxy| proxy.delay(SLOW));
                w.for_each_proxy(client, Proxy::drop_connections);
            },
            end: |w, client| {
                w.for_each_proxy(client, |proxy| proxy.delay(Duration::ZERO));
                w.for_each_proxy(client, Proxy::drop_connections);
            },
        },
    ];
}
