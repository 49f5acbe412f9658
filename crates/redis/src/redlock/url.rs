//! Parses the nodes of a URL, and checks their number.

use std::collections::HashSet;

use leasehold_core::Error;

use crate::{config::Config, server::Address, servers::Servers};

/// The most nodes of a Redlock: a longer list is a mistake.
const MAX_NODES: usize = 15;

/// Parses the part of a URL after `redlock:`.
pub(super) fn read(rest: &str) -> Result<Vec<Config>, Error> {
    let malformed = |defect: &str| {
        Error::misconfigured(format!(
            "the redlock URL {defect}: write it like redlock://user:password@h1:6379,h2:6379/1,rediss://h3:6380"
        ))
    };
    let nodes_text = rest.strip_prefix("//").ok_or_else(|| malformed("has no //"))?;
    let mut nodes: Vec<Config> = Vec::new();
    for node_text in nodes_text.split(',') {
        let (scheme, address) = match node_text.split_once("://") {
            Some((scheme @ ("redis" | "rediss"), address)) => (scheme, address),
            Some(_) => return Err(malformed("has a node that is neither redis:// nor rediss://")),
            None => ("redis", node_text),
        };
        let mut node = Config::from_url(scheme, &format!("//{address}"))?;
        node.wants_tls = scheme == "rediss";
        if !address.contains('@')
            && let Some(first) = nodes.first()
        {
            node.login = first.login.clone();
        }
        nodes.push(node);
    }
    Ok(nodes)
}

/// Refuses unsuitable numbers and kinds of nodes, with a recommendation.
pub(super) fn judge(nodes: &[Config]) -> Result<(), Error> {
    let refuse = |description: &str| Err(Error::misconfigured(format!("a Redlock of {description}")));
    match nodes.len() {
        0 => return refuse("no nodes: name 3 or 5 independent masters"),
        1 => {
            return refuse(
                "one node is a lock on that server alone: write redis:// (or name 3 or 5 independent masters)",
            );
        }
        2 => {
            return refuse(
                "two nodes stops when either fails: name 3 independent masters, or write redis:// for one durable server",
            );
        }
        many if many > MAX_NODES => {
            return refuse(&format!("{many} nodes asks too many servers for each lock: name 3 or 5"));
        }
        even if even.is_multiple_of(2) => {
            return refuse(&format!(
                "{even} nodes survives no more failures than one of {}, because it needs a majority: name {} or {}",
                even - 1,
                even - 1,
                even + 1
            ));
        }
        _ => {}
    }
    let mut addresses = HashSet::new();
    for node in nodes {
        let Servers::One(address) = &node.servers else {
            return refuse("Sentinels or a Cluster is none: name independent masters");
        };
        if !matches!(address, Address::Tcp(_)) {
            return refuse("servers on one machine is lost with it: name hosts and ports");
        }
        if !addresses.insert(address.clone()) {
            return refuse(&format!(
                "these nodes names {address} twice, which would count its vote twice: name another server"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedlockConfig;

    #[test]
    fn each_node_has_its_own_credentials_database_and_encryption() {
        let nodes = read("//u:p%2Cq@a:1/2,rediss://b,@c:3,rediss://v:w@d/4,e").unwrap();
        let expected = |node: &Config| {
            let Servers::One(address) = &node.servers else { panic!("one server") };
            let user = node.login.user.clone().unwrap_or_default();
            format!("{address} {} {user} {} {}", node.db, node.login.password.is_some(), node.wants_tls)
        };
        let expected: Vec<String> = nodes.iter().map(expected).collect();
        assert_eq!(
            expected,
            [
                "a:1 2 u true false",
                "b:6379 0 u true true",
                "c:3 0  false false",
                "d:6379 4 v true true",
                "e:6379 0 u true false"
            ]
        );
    }

    #[test]
    fn an_unsuitable_redlock_is_refused_with_an_alternative() {
        for (rest, expected) in [
            ("//a", "write redis://"),
            ("//a,b", "name 3 independent masters"),
            ("//a,b,c,d", "name 3 or 5"),
            ("//a,b,c,d,e,f", "name 5 or 7"),
            ("//a,b,a:6379", "a:6379 twice"),
            ("//a,b,http://c", "neither redis:// nor rediss://"),
            ("a,b,c", "has no //"),
            ("//a,b,", "names no host"),
            ("//a,b,c:x", "port"),
            ("//u:hunter2@a,b,c/x", "database"),
            (&format!("//{}", ["a"; 17].join(",")), "too many servers"),
        ] {
            let error = RedlockConfig::from_url(rest).unwrap_err();
            assert!(error.is_misconfigured() && error.to_string().contains(expected), "{rest}: {error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert!(!format!("{:?}", RedlockConfig::from_url("//u:hunter2@a,b,c")).contains("hunter2"));
    }
}
