//! Servers that send malformed messages: the client survives, and continues with the next server.

use std::io;

use leasehold_core::{Engine, Fault, How};
use leasehold_testkit::server::{FakeConnection, FakeServer, Proxy};

use crate::rig::{Rig, claim, claim_and_hold, release_hold};

/// One packet.
pub(crate) fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&length[..3], &[number], body].concat()
}

/// The first packet of a server of version 8, with the flags that the driver needs.
fn greeting() -> Vec<u8> {
    greeting_by("mysql_native_password")
}

/// The same, with this login plugin.
pub(crate) fn greeting_by(login: &str) -> Vec<u8> {
    let flags: u32 = 0x0001 | 0x0008 | 0x0200 | 0x2000 | 0x8000 | 1 << 16 | 1 << 17 | 1 << 19 | 1 << 24;
    let [low, high] = [flags & 0xffff, flags >> 16].map(|half| (half as u16).to_le_bytes());
    let body = [
        b"\x0a8.0.30\0\x01\0\0\0saltsalt\0".as_slice(),
        &low,
        b"\x2d\x02\0",
        &high,
        b"\x15\0\0\0\0\0\0\0\0\0\0saltsaltsalt\0",
        login.as_bytes(),
        b"\0",
    ];
    packet(0, &body.concat())
}

/// Accepts every login, and answers every request with these packets.
fn lets_in(connection: &mut FakeConnection, answer: &[u8]) -> io::Result<()> {
    connection.send(&greeting())?;
    connection.receive()?;
    connection.send(&packet(2, b"\0\0\0\x02\0\0\0"))?;
    while connection.receive()? > 0 {
        connection.send(answer)?;
    }
    Ok(())
}

/// R24: the driver allocates room for as many columns as the server announces, and panics at an impossible number.
#[test]
fn a_panic_of_the_driver_is_an_error() {
    let rig = Rig::new();
    let column = packet(2, b"\x03def\0\0\0\x01c\0\x0c\x2d\0\xff\0\0\0\xfd\0\0\0\0\0");
    for (what, answer) in [
        ("a column count", packet(1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff")),
        ("an empty row", [packet(1, b"\x01"), column, packet(3, b"")].concat()),
        ("an empty packet", packet(1, b"")),
        ("a packet of another number", packet(9, b"\0\0\0\x02\0\0\0")),
        ("a file to be sent", packet(1, b"\xfb/etc/passwd")),
    ] {
        let fake_server = FakeServer::start(move |connection| lets_in(connection, &answer));
        let proxy = Proxy::start(fake_server.port());
        let engine = rig.engine_through(proxy.port());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mine = claim("a");
        let error = runtime.block_on(engine.claim(&mine, How::Create)).unwrap_err();
        assert!(matches!(error.fault, Fault::Retry | Fault::Unknown), "{what}: {error:?}");
        assert!(fake_server.connections() > 0, "{what}");
        proxy.point_to(rig.server.port());
        proxy.reset();
        runtime.block_on(async {
            let grant = claim_and_hold(&*engine, &mine).await;
            release_hold(&*engine, &mine, &grant).await;
        });
    }
}
