//! The server by TLS.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
};

use leasehold_serve::{Server, TlsFiles};
use leasehold_testkit::server::certificates;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::{
    http::{Answer, request},
    site::{OWN, Site, VIEW, file},
};

fn site() -> Site {
    Site::start(|settings, dir| {
        certificates(dir);
        let key = std::fs::read_to_string(dir.join("server.key")).unwrap();
        let key = file(dir, "private.key", &key);
        settings.tls = Some(TlsFiles { certificate: dir.join("server.pem"), key });
        settings.view_tokens = Some(file(dir, "view", VIEW));
    })
}

fn send(site: &Site, text: &str) -> Answer {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(site.dir.path().join("ca.pem")).unwrap() {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(site.address()).unwrap());
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    Answer::parse(&answer)
}

#[test]
fn a_session_over_tls_has_a_cookie_of_this_host_alone() {
    let site = site();
    let body = format!("token={VIEW}");
    let answer = send(&site, &request("POST", "/login", &[OWN], &body));
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with("__Host-leasehold=") && cookie.contains("; Secure"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    assert_eq!(send(&site, &request("GET", "/", &[("Cookie", &cookie)], "")).status, 200);
    assert_eq!(send(&site, &request("GET", "/", &[], "")).status, 401);
}

#[test]
fn an_unencrypted_request_is_not_answered() {
    let site = site();
    let mut stream = TcpStream::connect(site.address()).unwrap();
    stream.write_all(request("GET", "/livez", &[], "").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let mut settings = leasehold_serve::Settings::new("127.0.0.1:0".parse().unwrap(), Vec::new());
    let key = dir.path().join("server.key");
    settings.tls = Some(TlsFiles { certificate: dir.path().join("server.pem"), key });
    let error = Server::start(settings).err().unwrap().to_string();
    assert!(error.contains("chmod 600"), "{error}");
}
