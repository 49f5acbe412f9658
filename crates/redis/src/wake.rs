//! The option `wake=`: a release of leasehold wakes waiters of another lock program, whose waiters do not poll, but
//! sleep until a wake-up. The wake-up is the same as by a release of that program.

use std::str::FromStr;

use leasehold_core::Error;

/// The prefix of the lock keys of python-redis-lock and of walrus.
const LOCK_PREFIX: &str = "lock:";

/// The program whose waiters a release wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// python-redis-lock, `prl` in a URL: a release pushes an item, which expires after a second, to the list
    /// `lock-signal:NAME`. Leasehold's prefix of lock keys must begin with `lock:`.
    PythonRedisLock,
    /// walrus: a release pushes an item to the list `lock.event:NAME`. Leasehold's prefix of lock keys must begin with
    /// `lock:`.
    Walrus,
    /// The type `PUB_SUB_LOCK` of Spring's `RedisLockRegistry`: a release publishes a message on the channel
    /// `REGISTRY-channel:KEY`. `REGISTRY` is the registry key; `KEY` is the whole Redis key of the lock, with its
    /// prefix. Leasehold's prefix of lock keys must be the registry key followed by a colon.
    Spring,
}

impl FromStr for Wake {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "prl" => Ok(Self::PythonRedisLock),
            "walrus" => Ok(Self::Walrus),
            "spring" => Ok(Self::Spring),
            // The value is not shown: in a URL it may be a part of the password.
            _ => {
                Err(Error::misconfigured("the URL option wake is unknown: prl, walrus and spring are known"))
            }
        }
    }
}

impl Wake {
    /// The words that tell the scripts which program to wake, if lock keys have this prefix. See `wake_waiters()` in
    /// `lua/wake.lua`.
    pub(crate) fn script_words(self, prefix: &str) -> Result<String, Error> {
        let refused = |required: &str| {
            Error::misconfigured(format!(
                "this value of wake= is for keys that begin with {required}: choose that prefix"
            ))
        };
        match self {
            Self::PythonRedisLock if prefix.starts_with(LOCK_PREFIX) => Ok("prl".to_owned()),
            Self::Walrus if prefix.starts_with(LOCK_PREFIX) => Ok("walrus".to_owned()),
            Self::PythonRedisLock | Self::Walrus => Err(refused(LOCK_PREFIX)),
            Self::Spring => match prefix.strip_suffix(':') {
                Some(registry) if !registry.is_empty() => Ok(format!("spring {registry}")),
                _ => Err(refused("the registry key and a colon")),
            },
        }
    }

    /// Refuses, on a Redis Cluster, programs whose wake-up is a write to a key in another slot than the lock key,
    /// because no script can write keys of two slots. A wake-up by a message is possible: messages reach all nodes.
    pub(crate) fn check_cluster(self) -> Result<(), Error> {
        let program = match self {
            Self::PythonRedisLock => "python-redis-lock",
            Self::Walrus => "walrus",
            Self::Spring => return Ok(()),
        };
        Err(Error::misconfigured(format!(
            "{program} does not run on a Redis Cluster, because its wake-up is a key in another slot than the lock: leave the option wake out"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wake_needs_the_prefix_of_its_program() {
        let script_words = |wake: &str, prefix: &str| wake.parse::<Wake>().unwrap().script_words(prefix);
        assert_eq!(script_words("prl", "lock:").unwrap(), "prl");
        assert_eq!(script_words("walrus", "lock:team:").unwrap(), "walrus");
        assert_eq!(script_words("spring", "my registry:").unwrap(), "spring my registry");
        for (wake, prefix) in [("prl", ""), ("walrus", "app:"), ("spring", "registry"), ("spring", ":")] {
            assert!(script_words(wake, prefix).unwrap_err().is_misconfigured(), "{wake} {prefix}");
        }
        assert!("gong".parse::<Wake>().unwrap_err().is_misconfigured());
    }
}
