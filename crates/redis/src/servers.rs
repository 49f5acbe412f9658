//! The servers of a URL.

use std::{collections::HashMap, fmt};

use leasehold_core::{Endpoint, Error};

use crate::server::{Address, Login};

/// The servers that store the locks, and how the server to ask is found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Servers {
    /// One server. Its host name is resolved anew for each connection, and may then lead to another server.
    One(Address),
    /// The master of a group that Sentinels watch.
    Sentinel(Sentinels),
    /// A Redis Cluster, found through some of its nodes.
    Cluster(Vec<Endpoint>),
}

/// Sentinels, and their name for the group of servers (a master and its replicas) whose master stores the locks. Its
/// `Debug` shows no password.
#[derive(Clone)]
pub struct Sentinels {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) group: String,
    /// The login at the Sentinels; the watched servers have another login.
    pub(crate) login: Login,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::Tls>,
}

/// Maps addresses that servers announce to addresses at which this client reaches those servers: for servers behind
/// address translation, or in containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMap(HashMap<Endpoint, Endpoint>);

/// The port in an entry of an [`AddressMap`] that applies to every port of its host.
const ANY_PORT: u16 = 0;

impl Sentinels {
    /// Sentinels without a password, and their name for the group.
    #[must_use]
    pub fn new(endpoints: Vec<Endpoint>, group: &str) -> Self {
        Self {
            endpoints,
            group: group.to_owned(),
            login: Login::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl AddressMap {
    /// Reads `announced:port=reachable:port,...`. An entry without ports applies to all ports of the host.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured), with the expected form.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let malformed = || {
            Error::misconfigured(
                "the map of addresses is malformed: write it like 10.0.0.5:6379=db.example:16379,10.0.0.6=db2.example",
            )
        };
        let endpoint = |text: &str| match Endpoint::split(text, ANY_PORT) {
            Some((host, port)) if !host.is_empty() => Ok(Endpoint { host: host.to_owned(), port }),
            _ => Err(malformed()),
        };
        let entry = |pair: &str| {
            let (announced, reachable) = pair.split_once('=').ok_or_else(malformed)?;
            let (announced, reachable) = (endpoint(announced)?, endpoint(reachable)?);
            if announced.port == ANY_PORT && reachable.port != ANY_PORT {
                return Err(malformed());
            }
            Ok((announced, reachable))
        };
        text.split(',').map(entry).collect::<Result<_, _>>().map(Self)
    }

    /// The reachable address of a server that announces the address `announced`; `announced` itself if the map has no
    /// entry for it.
    pub(crate) fn reachable(&self, announced: Endpoint) -> Endpoint {
        let mapped = self.0.get(&announced).or_else(|| {
            let any_port = Endpoint { host: announced.host.clone(), port: ANY_PORT };
            self.0.get(&any_port)
        });
        match mapped {
            Some(endpoint) if endpoint.port == ANY_PORT => {
                Endpoint { host: endpoint.host.clone(), port: announced.port }
            }
            Some(endpoint) => endpoint.clone(),
            None => announced,
        }
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels")
            .field("endpoints", &self.endpoints)
            .field("master", &self.group)
            .field("user", &self.login.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_turns_announced_into_reachable_addresses() {
        let map = AddressMap::parse("10.0.0.5:1=a:2,10.0.0.5:3=b,10.0.0.6=[::1],[fe80::1]:7=c:8").unwrap();
        let endpoint = |host: &str, port| Endpoint { host: host.to_owned(), port };
        for (announced, reachable) in [
            (("10.0.0.5", 1), ("a", 2)),
            (("10.0.0.5", 3), ("b", 3)),
            (("10.0.0.5", 4), ("10.0.0.5", 4)),
            (("10.0.0.6", 9), ("::1", 9)),
            (("fe80::1", 7), ("c", 8)),
        ] {
            let mapped = map.reachable(endpoint(announced.0, announced.1));
            assert_eq!(mapped, endpoint(reachable.0, reachable.1));
        }
        for malformed in ["", "a", "a:1", "a:1=", "=b", "a:x=b", "a=b:1", "a:1=b:2,"] {
            assert!(AddressMap::parse(malformed).is_err(), "{malformed:?}");
        }
    }
}
