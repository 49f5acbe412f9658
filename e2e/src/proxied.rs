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

    /// All faults.
    const FAULTS: &'static [Fault<Self>] = &[
        Self::STOP,
        Self::KILL,
        Self::CUT_BEFORE_REQUEST,
        Self::CUT_AFTER_REQUEST,
        Self::CUT_BEFORE_REPLY,
        Self::REQUESTS_HELD,
        Self::ANSWERS_HELD,
        Self::HALF_OPEN,
        Self::RESET,
        Self::SLOW,
    ];

    /// The faults in which no connection of a live process is closed. The server ends the session of a connection only
    /// if the process of that session has ended.
    const FAULTS_WITHOUT_CUTS: &'static [Fault<Self>] =
        &[Self::STOP, Self::KILL, Self::REQUESTS_HELD, Self::ANSWERS_HELD, Self::SILENT];

    /// The process is stopped.
    const STOP: Fault<Self> = Fault {
        name: "stop",
        lasts: 30..Self::MAX_STOP,
        begin: |w, client| w.workers().stop(client),
        end: |w, client| w.workers().resume(client),
    };

    /// The process is killed, and another one starts in its place.
    const KILL: Fault<Self> = Fault {
        name: "kill",
        lasts: 1..200,
        begin: |w, client| w.workers().kill(client),
        end: |w, client| w.workers().replace(client),
    };

    /// Requests do not arrive, and then the connection is cut.
    const CUT_BEFORE_REQUEST: Fault<Self> = Fault {
        name: "cut before the request",
        lasts: 5..200,
        begin: |w, client| w.for_each_proxy(client, Proxy::hold_requests),
        end: |w, client| w.for_each_proxy(client, Proxy::drop_connections),
    };

    /// Makes a late request: the connection of the client is cut, and a request that it sent before arrives later.
    const CUT_AFTER_REQUEST: Fault<Self> = Fault {
        name: "cut after the request",
        lasts: 5..400,
        begin: |w, client| {
            w.for_each_proxy(client, Proxy::hold_requests);
            sleep(Duration::from_millis(2));
            w.for_each_proxy(client, Proxy::cut_clients);
        },
        end: |w, client| w.for_each_proxy(client, Proxy::release_held),
    };

    /// Answers do not arrive, and then the connection is cut.
    const CUT_BEFORE_REPLY: Fault<Self> = Fault {
        name: "cut before the reply",
        lasts: 5..200,
        begin: |w, client| w.for_each_proxy(client, Proxy::hold_answers),
        end: |w, client| w.for_each_proxy(client, Proxy::drop_connections),
    };

    /// Requests are late.
    const REQUESTS_HELD: Fault<Self> = Fault {
        name: "requests held",
        lasts: 20..Self::MAX_HOLD_BACK,
        begin: |w, client| w.for_each_proxy(client, Proxy::hold_requests),
        end: |w, client| w.for_each_proxy(client, Proxy::release_held),
    };

    /// Answers are late.
    const ANSWERS_HELD: Fault<Self> = Fault {
        name: "answers held",
        lasts: 20..Self::MAX_HOLD_BACK,
        begin: |w, client| w.for_each_proxy(client, Proxy::hold_answers),
        end: |w, client| w.for_each_proxy(client, Proxy::release_held),
    };

    /// The network carries nothing for a time, and then carries everything that was sent meanwhile.
    const SILENT: Fault<Self> = Fault {
        name: "silent",
        lasts: 500..Self::MAX_STOP,
        begin: |w, client| Self::hold_both(w, client),
        end: |w, client| w.for_each_proxy(client, Proxy::release_held),
    };

    /// The network carries nothing for a time, and then the connection is cut.
    const HALF_OPEN: Fault<Self> = Fault {
        name: "half-open",
        lasts: 500..Self::MAX_STOP,
        begin: |w, client| Self::hold_both(w, client),
        end: |w, client| w.for_each_proxy(client, Proxy::drop_connections),
    };

    /// The connection is reset.
    const RESET: Fault<Self> = Fault {
        name: "reset",
        lasts: 1..10,
        begin: |w, client| w.for_each_proxy(client, Proxy::reset),
        end: |_, _| {},
    };

    /// Answers are slow. A delay applies to new connections only, so the existing ones are closed.
    const SLOW: Fault<Self> = Fault {
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
    };

    /// Holds the messages of both directions.
    fn hold_both(&mut self, client: usize) {
        self.for_each_proxy(client, Proxy::hold_requests);
        self.for_each_proxy(client, Proxy::hold_answers);
    }
}
