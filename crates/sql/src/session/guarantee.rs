//! The parts of the guarantee that do not depend on the database.

use std::time::Duration;

use leasehold_core::Guarantee;

use super::options::LONGEST_TTL;

/// What is not known of a connection without addresses.
const SOCKET_NOTE: &str = "a unix socket does not show whether a pooler or proxy is behind it: such a program can end the session of a process that is not told yet, and until then, for at most 15s, two processes may rely on one hold";

/// What is known of the path to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// The server sees the address of this side.
    Direct,
    /// A unix socket: whether a pooler or proxy is behind it is not known.
    Socket,
    /// The server sees another address than that of this side.
    SeenAs(String),
}

impl Path {
    /// Judges the path. `between` says what can be between this process and the server, for the message.
    pub(crate) fn judge(&self, between: &str, guarantee: &mut Guarantee) {
        match self {
            Self::Direct => {}
            Self::Socket => guarantee.note(SOCKET_NOTE),
            Self::SeenAs(address) => guarantee.lower(
                "the address at which the server sees this process",
                address,
                "the own address of its connection",
                &format!("{between} in between can end the session of a process that is not told yet, and until then, for at most 15s, two processes may rely on one hold"),
            ),
        }
    }
}

/// Judges the lock delay that the options ask for.
pub(crate) fn judge_delay(delay: Duration, guarantee: &mut Guarantee) {
    if delay < LONGEST_TTL {
        guarantee.lower(
            "delay",
            &format!("{delay:?}"),
            &format!("{LONGEST_TTL:?}"),
            "after a restart of the server a name may be granted while its former holder still relies on it",
        );
    }
}
