//! A proxy that connects to the server again, and does not tell its client.

use std::sync::Arc;

use leasehold_core::{Engine, How, Renewed};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use super::rig::{no_delay, session_at};
use crate::rig::{Rig, claim, claim_and_hold, hold_of};

/// The size of a packet's header; its first three bytes are the length of the body.
const HEADER: usize = 4;

async fn packet(from: &mut TcpStream) -> Vec<u8> {
    let mut packet = vec![0; HEADER];
    from.read_exact(&mut packet).await.unwrap();
    let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]) as usize;
    packet.resize(HEADER + length, 0);
    from.read_exact(&mut packet[HEADER..]).await.unwrap();
    packet
}

/// Passes bytes between one client and the server, and connects to the server again when it is told to. The user has no
/// password, so the login of the client is good for every connection.
async fn serve(listener: TcpListener, port: u16, again: Arc<Notify>) {
    let (mut client, _) = listener.accept().await.unwrap();
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    client.write_all(&packet(&mut server).await).await.unwrap();
    let login = packet(&mut client).await;
    server.write_all(&login).await.unwrap();
    let (mut requests, mut answers) = ([0; 4096], [0; 4096]);
    loop {
        tokio::select! {
            read = client.read(&mut requests) => match read {
                Ok(count @ 1..) => server.write_all(&requests[..count]).await.unwrap(),
                _ => return,
            },
            read = server.read(&mut answers) => match read {
                Ok(count @ 1..) => client.write_all(&answers[..count]).await.unwrap(),
                _ => return,
            },
            () = again.notified() => {
                server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                packet(&mut server).await;
                server.write_all(&login).await.unwrap();
                let answer = packet(&mut server).await;
                assert_eq!(answer[HEADER], 0, "the server accepts the login");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_connects_again_ends_every_hold() {
    let rig = Rig::new();
    rig.wait_until_it_grants();
    for asks in [false, true] {
        let (listener, again) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), Arc::<Notify>::default());
        let port = listener.local_addr().unwrap().port();
        let proxy = tokio::spawn(serve(listener, rig.server.port(), Arc::clone(&again)));
        let one = session_at(&format!("//root@127.0.0.1:{port}/locks"), no_delay());
        let mine = claim("a");
        let grant = claim_and_hold(&*one, &mine).await;
        let before = rig.sessions();
        again.notify_one();
        crate::rig::until("the proxy has another session", || {
            let now = rig.sessions();
            now.len() == 1 && now != before
        })
        .await;
        // The first request that is answered by the new session shows it, whichever that is.
        if asks {
            let answer = one.claim(&claim("b"), How::Create).await;
            assert!(answer.is_err(), "{answer:?}");
        }
        let renewed = one.renew(&[hold_of(&mine, &grant)]).await.remove(0);
        assert!(matches!(renewed, Renewed::Lost(_)), "{renewed:?}");
        let next = claim("a");
        let other = rig.session();
        let grant = claim_and_hold(&*other, &next).await;
        crate::rig::release_hold(&*other, &next, &grant).await;
        drop(other);
        proxy.abort();
    }
}
