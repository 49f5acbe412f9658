//! The proxy counts the bytes that pass.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use leasehold_testkit::server::Proxy;

#[test]
fn bytes_are_counted_in_each_direction() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        client.read_exact(&mut [0; 3]).unwrap();
        client.write_all(b"five!").unwrap();
    });
    let proxy = Proxy::start(port);
    assert_eq!(proxy.bytes(), (0, 0));
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    client.write_all(b"ask").unwrap();
    let mut answer = [0; 5];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"five!");
    assert_eq!(proxy.bytes(), (3, 5));
    server.join().unwrap();
}
