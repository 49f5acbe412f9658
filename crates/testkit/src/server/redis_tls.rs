//! TLS of private servers of Redis.

use std::path::Path;

use super::{child::free_port, redis_node::RedisNode};

/// Who else speaks TLS than clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bus {
    Plain,
    /// Nodes of a cluster among themselves, which then tell clients that speak TLS the ports where they do.
    Encrypted,
}

/// Gives a node that does not run yet a port for encrypted connections of clients with a certificate of its authority. It shows the
/// certificate `own`.
pub(super) fn encrypt(node: &mut RedisNode, certificates: &Path, own: &str, bus: Bus) -> u16 {
    let port = free_port();
    let file = |name: &str| certificates.join(name).display().to_string();
    let mut options = vec![
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", file(&format!("{own}.pem"))),
        ("--tls-key-file", file(&format!("{own}.key"))),
        ("--tls-ca-cert-file", file("ca.pem")),
        ("--tls-auth-clients", "yes".to_owned()),
    ];
    if bus == Bus::Encrypted {
        options.extend(["--tls-cluster", "--tls-replication"].map(|option| (option, "yes".to_owned())));
    }
    node.arguments.extend(options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]));
    port
}
