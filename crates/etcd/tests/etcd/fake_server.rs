//! Servers that send what no etcd sends: a reply takes bounded memory, and the client goes on with the next server.

use std::{sync::Arc, time::Duration};

use h2::server;
use leasehold_core::{Env, Locks};
use leasehold_etcd::{Config, EtcdEngine};
use leasehold_testkit::server::Proxy;
use tokio::{net::TcpListener, sync::mpsc};
use tonic::codegen::{Bytes, http::Response};

use crate::rig::{PATIENCE, Rig, acquire, local};

/// A server that answers every call with this message, whose header claims this length.
struct FakeServer {
    port: u16,
    /// For each reply, how reply_bytes bytes the client accepted.
    accepted: mpsc::UnboundedReceiver<usize>,
}

impl FakeServer {
    async fn start(length: u32, message: Bytes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (report, accepted) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (message, report) = (message.clone(), report.clone());
                tokio::spawn(async move {
                    let Ok(mut calls) = server::handshake(stream).await else { return };
                    while let Some(Ok((_, mut respond))) = calls.accept().await {
                        let head = Response::builder().header("content-type", "application/grpc");
                        let Ok(mut out) = respond.send_response(head.body(()).unwrap(), false) else {
                            return;
                        };
                        let header = [&[0][..], &length.to_be_bytes()].concat();
                        let (message, report) = (message.clone(), report.clone());
                        tokio::spawn(async move {
                            let _ = out.send_data(header.into(), false);
                            let mut sent = 0;
                            for part in message.chunks(16 * 1024) {
                                out.reserve_capacity(part.len());
                                let room = std::future::poll_fn(|cx| out.poll_capacity(cx)).await;
                                if !matches!(room, Some(Ok(_))) {
                                    break;
                                }
                                if out.send_data(Bytes::copy_from_slice(part), false).is_err() {
                                    break;
                                }
                                sent += part.len();
                            }
                            let _ = report.send(sent);
                        });
                    }
                });
            }
        });
        Self { port, accepted }
    }
}

#[test]
fn a_reply_is_bounded() {
    let rig = Rig::new();
    let reply_bytes = 32 << 20;
    // Empty alarm texts: in memory, each takes twelve times its length on the wire.
    let alarms = Bytes::from([0x42, 0].repeat(reply_bytes / 2));
    for (what, length, message) in [
        ("a length beyond the bound", u32::MAX, Bytes::from(vec![0; reply_bytes])),
        ("a list of empty texts", reply_bytes as u32, alarms),
        ("no message", 3, Bytes::from_static(b"\xff\xff\xff")),
    ] {
        let mut fake_server = rig.run(FakeServer::start(length, message));
        let proxy = Proxy::start(fake_server.port);
        let config = Config::new(vec![local(proxy.port())]);
        let locks = Locks::builder(Arc::new(EtcdEngine::new(config, &Env::system()))).build();
        let error = locks.mutex("a").blocking().acquire_within(Duration::from_millis(100)).unwrap_err();
        assert!(!error.is_taken(), "{what}: {error}");
        let accepted = rig.run(async { tokio::time::timeout(PATIENCE, fake_server.accepted.recv()).await });
        let accepted = accepted.unwrap().unwrap();
        if length == u32::MAX {
            assert!(accepted < reply_bytes, "{what}: all {accepted} bytes were read");
        }
        proxy.point_to(rig.server.port());
        proxy.reset();
        acquire(&locks, "a").release_blocking().unwrap();
    }
}
