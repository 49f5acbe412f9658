//! TLS for private Redis servers.

use std::path::Path;

use super::{child::free_port, redis_node::RedisNode};

/// Whether nodes also use TLS with each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bus {
    Plain,
    /// Nodes of a cluster use TLS with each other, and report their TLS ports to clients that use TLS.
    Encrypted,
}

/// Gives a node that is not started yet a port for encrypted connections, of clients with a certificate signed by its
/// authority. The node presents the `certificate`.
pub(super) fn encrypt(node: &mut RedisNode, certificates: &Path, certificate: &str, bus: Bus) -> u16 {
    let port = free_port();
    let path = |name: &str| certificates.join(name).display().to_string();
    let mut options = vec![
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", path(&format!("{certificate}.pem"))),
        ("--tls-key-file", path(&format!("{certificate}.key"))),
        ("--tls-ca-cert-file", path("ca.pem")),
        ("--tls-auth-clients", "yes".to_owned()),
    ];
    if bus == Bus::Encrypted {
        options.extend(["--tls-cluster", "--tls-replication"].map(|option| (option, "yes".to_owned())));
    }
    node.arguments.extend(options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]));
    port
}
