//! The simplest client of ZooKeeper: one blocking socket for one task. Unlike in leasehold and in the client crate,
//! there is neither a runtime nor another thread between the task and the server.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::Failure;

/// The timeout of the client's session. It is longer than any pause of the client, because the client sends no
/// heartbeats.
const SESSION_TIMEOUT_MILLIS: i32 = 60_000;
const CREATE: i32 = 1;
const DELETE: i32 = 2;
const CHILDREN: i32 = 8;
const EPHEMERAL_SEQUENTIAL: i32 = 3;
const ALL_RIGHTS: i32 = 31;
/// The size of the header of an answer: the number of the request, the id of the newest transaction, and an error code.
const HEADER_BYTES: usize = 16;

pub(crate) struct Socket {
    stream: TcpStream,
    requests: i32,
}

impl Socket {
    pub(crate) fn connect(port: u16) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let mut socket = Self { stream, requests: 0 };
        let mut hello = Vec::new();
        // The protocol version, and the newest transaction that the client has seen. Both are 0.
        hello.extend([0; 12]);
        hello.extend(SESSION_TIMEOUT_MILLIS.to_be_bytes());
        // The client has no session id yet; the password is empty.
        hello.extend([0; 8]);
        bytes(&mut hello, &[0; 16]);
        socket.exchange(&hello)?;
        Ok(socket)
    }

    /// How many pairs a second the client completes. A pair is create, list and delete; each request is sent after the
    /// answer to the previous one.
    pub(crate) fn pairs(&mut self, measurement_time: Duration, dir: &str) -> Result<f64, Failure> {
        let (begin, mut completed) = (Instant::now(), 0);
        while begin.elapsed() < measurement_time {
            self.pair(dir)?;
            completed += 1;
        }
        Ok(f64::from(completed) / begin.elapsed().as_secs_f64())
    }

    fn pair(&mut self, dir: &str) -> Result<(), Failure> {
        let mut create = Vec::new();
        bytes(&mut create, format!("{dir}/lock-").as_bytes());
        bytes(&mut create, b"30000 user@host:12345");
        create.extend(1_i32.to_be_bytes());
        create.extend(ALL_RIGHTS.to_be_bytes());
        bytes(&mut create, b"world");
        bytes(&mut create, b"anyone");
        create.extend(EPHEMERAL_SEQUENTIAL.to_be_bytes());
        let node = self.ask(CREATE, &create)?;
        let mut list = Vec::new();
        bytes(&mut list, dir.as_bytes());
        list.push(0);
        if self.ask(CHILDREN, &list)?.get(..4) != Some(&1_i32.to_be_bytes()) {
            return Err("others in a queue where one was expected".into());
        }
        // The path of the node, and -1 for any version.
        self.ask(DELETE, &[&node[..], &(-1_i32).to_be_bytes()].concat())?;
        Ok(())
    }

    fn ask(&mut self, what: i32, body: &[u8]) -> Result<Vec<u8>, Failure> {
        self.requests += 1;
        let mut answer =
            self.exchange(&[&self.requests.to_be_bytes(), &what.to_be_bytes(), body].concat())?;
        if answer.len() < HEADER_BYTES || answer[12..HEADER_BYTES] != [0; 4] {
            return Err(format!("the server answered {answer:?}").into());
        }
        Ok(answer.split_off(HEADER_BYTES))
    }

    /// Sends one message and reads one answer.
    fn exchange(&mut self, message: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut framed = Vec::new();
        bytes(&mut framed, message);
        self.stream.write_all(&framed)?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?];
        self.stream.read_exact(&mut answer)?;
        Ok(answer)
    }
}

/// Appends the length of `value` and its bytes.
fn bytes(message: &mut Vec<u8>, value: &[u8]) {
    message.extend((value.len() as u32).to_be_bytes());
    message.extend(value);
}
