//! Certificates for a private server.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Writes a certificate authority (`ca.pem`, `ca.key`) and two certificates signed by it, with their keys: one for the
/// server at `localhost` (`server.pem`, `server.key`) and one for a client (`client.pem`, `client.key`).
///
/// # Panics
/// If the directory does not take the files.
pub fn write(directory: &Path) {
    let write = |name: &str, text: String| {
        std::fs::write(directory.join(name), text).expect("a private directory takes a file");
    };
    let params = |name: &str| {
        let names = if name == "localhost" { vec![name.to_owned()] } else { Vec::new() };
        let mut params = CertificateParams::new(names).expect("these names can be certified");
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let key = || KeyPair::generate().expect("the system gives randomness");
    let mut root = params("an authority");
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = key();
    write("ca.key", own.serialize_pem());
    let authority = CertifiedIssuer::self_signed(root, own).expect("it can sign");
    write("ca.pem", authority.pem());
    for (file, name) in [("server", "localhost"), ("client", "a client")] {
        let key = key();
        let signed = params(name).signed_by(&key, &authority).expect("the authority can sign");
        write(&format!("{file}.pem"), signed.pem());
        write(&format!("{file}.key"), key.serialize_pem());
    }
}
