//! A plain client of ZooKeeper, which knows nothing of leasehold, and locks as programs written by hand do.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use leasehold_testkit::server::ZookeeperServer;

/// The longest session that the servers of the tests grant. A client sends nothing to keep its session alive.
pub(crate) const LONG_SESSION_MILLIS: u32 = 60_000;
/// The kinds of requests.
const CREATE: u32 = 1;
const DELETE: u32 = 2;
const GET_DATA: u32 = 4;
const SET_DATA: u32 = 5;
const GET_CHILDREN: u32 = 8;
const LOG_IN: u32 = 100;
const CLOSE: u32 = -11_i32 as u32;
/// The number of a login and of its answer.
const LOGIN: i32 = -4;
/// The number of a message that is an event.
const EVENT: i32 = -1;
/// The error of a request for a missing node.
const NO_NODE: i32 = -101;

/// A kind of node.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Persistent = 0,
    Ephemeral = 1,
    PersistentSequential = 2,
    EphemeralSequential = 3,
}

/// One connection with a session of its own. If it is dropped, the session times out, as when its program is killed.
pub(crate) struct RawClient {
    stream: TcpStream,
    last_request: i32,
    /// Events that arrived before an answer.
    events: usize,
}

impl RawClient {
    pub(crate) fn new(port: u16, session_millis: u32) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut client = Self { stream, last_request: 0, events: 0 };
        // The last known change is 0, and the session is new.
        client.write(&[&[0; 12], &session_millis.to_be_bytes()[..], &[0; 8], &text(&[0; 16])].concat());
        client.read();
        client
    }

    /// The same, as the user with all rights.
    pub(crate) fn as_super(port: u16) -> Self {
        let mut client = Self::new(port, LONG_SESSION_MILLIS);
        let (scheme, login) = ZookeeperServer::SUPER;
        let no_type = [0; 4];
        let body = [&no_type[..], &text(scheme.as_bytes()), &text(login.as_bytes())].concat();
        client.write(&[&LOGIN.to_be_bytes()[..], &LOG_IN.to_be_bytes(), &body].concat());
        let answer = client.read();
        let mut reader = Reader(&answer);
        let (number, _zxid, error) = (reader.int(), (reader.int(), reader.int()), reader.int());
        assert_eq!((number, error), (LOGIN, 0));
        client
    }

    /// Ends the session.
    pub(crate) fn close(mut self) {
        self.ask(CLOSE, &[]).unwrap();
    }

    /// The paths of all memos below the prefix `/locks`.
    pub(crate) fn memos(&mut self) -> Vec<String> {
        let directories = self.children_if_any("/locks/%memos");
        let directories = directories.into_iter().map(|directory| format!("/locks/%memos/{directory}"));
        let mut memos = Vec::new();
        for directory in directories {
            memos.extend(
                self.children_if_any(&directory).into_iter().map(|name| format!("{directory}/{name}")),
            );
        }
        memos
    }

    /// The data of a node.
    pub(crate) fn data(&mut self, path: &str) -> Vec<u8> {
        let answer = self.ask(GET_DATA, &[&text(path.as_bytes()), &[0][..]].concat()).unwrap();
        let mut reader = Reader(&answer);
        let length = usize::try_from(reader.int()).unwrap();
        reader.0[..length].to_vec()
    }

    /// Changes the data of a node.
    pub(crate) fn set_data(&mut self, path: &str, data: &[u8]) {
        let any_version = (-1_i32).to_be_bytes();
        self.ask(SET_DATA, &[&text(path.as_bytes()), &text(data), &any_version[..]].concat()).unwrap();
    }

    /// Creates a node with rights for everybody, and returns its path.
    pub(crate) fn create(&mut self, path: &str, data: &[u8], kind: Kind) -> String {
        let everybody = [&[0, 0, 0, 1, 0, 0, 0, 31][..], &text(b"world"), &text(b"anyone")].concat();
        let flags = (kind as u32).to_be_bytes();
        let answer =
            self.ask(CREATE, &[&text(path.as_bytes()), &text(data), &everybody, &flags[..]].concat());
        Reader(&answer.unwrap()).text()
    }

    /// Creates the next node of the queue in this directory.
    pub(crate) fn enqueue(&mut self, directory: &str) -> String {
        self.create(&format!("{directory}/lock-"), b"", Kind::EphemeralSequential)
    }

    /// Deletes a node.
    pub(crate) fn delete(&mut self, path: &str) {
        let any_version = (-1_i32).to_be_bytes();
        self.ask(DELETE, &[&text(path.as_bytes()), &any_version[..]].concat()).unwrap();
    }

    /// The names of all nodes in a directory, sorted by the whole name.
    pub(crate) fn children(&mut self, path: &str) -> Vec<String> {
        let answer = self.ask(GET_CHILDREN, &[&text(path.as_bytes()), &[0][..]].concat()).unwrap();
        let mut reader = Reader(&answer);
        let mut children: Vec<String> = (0..reader.int()).map(|_| reader.text()).collect();
        children.sort();
        children
    }

    /// The same; none if there is no such directory.
    fn children_if_any(&mut self, path: &str) -> Vec<String> {
        let request = [&text(path.as_bytes()), &[0][..]].concat();
        match self.ask(GET_CHILDREN, &request) {
            Ok(answer) => {
                let mut reader = Reader(&answer);
                (0..reader.int()).map(|_| reader.text()).collect()
            }
            Err(error) => {
                assert_eq!(error, NO_NODE, "{path}");
                Vec::new()
            }
        }
    }

    /// Watches a node, as by `GetW` in Go. False if it does not exist.
    pub(crate) fn watch(&mut self, path: &str) -> bool {
        match self.ask(GET_DATA, &[&text(path.as_bytes()), &[1][..]].concat()) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error, NO_NODE);
                false
            }
        }
    }

    /// Waits for the event of a watch.
    pub(crate) fn await_event(&mut self) {
        while self.events == 0 {
            self.receive();
        }
        self.events -= 1;
    }

    /// The whole recipe: waits until its node is the first one, and watches the node ahead of it. Returns the path of
    /// its node.
    pub(crate) fn lock(&mut self, directory: &str) -> String {
        let node = self.enqueue(directory);
        loop {
            let children = self.children(directory);
            let own = children.iter().position(|name| node.ends_with(&format!("/{name}"))).unwrap();
            match own.checked_sub(1) {
                None => return node,
                Some(ahead) if self.watch(&format!("{directory}/{}", children[ahead])) => self.await_event(),
                Some(_) => {}
            }
        }
    }

    /// Sends a request, and returns the body of its answer or its error.
    fn ask(&mut self, kind: u32, body: &[u8]) -> Result<Vec<u8>, i32> {
        self.last_request += 1;
        self.write(&[&self.last_request.to_be_bytes()[..], &kind.to_be_bytes(), body].concat());
        loop {
            if let Some(answer) = self.receive() {
                return answer;
            }
        }
    }

    /// Reads a message: the answer to the last request, or an event.
    fn receive(&mut self) -> Option<Result<Vec<u8>, i32>> {
        let message = self.read();
        let mut reader = Reader(&message);
        let (number, _zxid, error) = (reader.int(), (reader.int(), reader.int()), reader.int());
        if number == EVENT {
            self.events += 1;
            return None;
        }
        assert_eq!(number, self.last_request);
        Some(if error == 0 { Ok(reader.0.to_vec()) } else { Err(error) })
    }

    fn write(&mut self, message: &[u8]) {
        self.stream.write_all(&text(message)).unwrap();
    }

    fn read(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).unwrap();
        let mut message = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut message).unwrap();
        message
    }
}

/// The rest of a message.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn int(&mut self) -> i32 {
        let (int, rest) = self.0.split_first_chunk().unwrap();
        self.0 = rest;
        i32::from_be_bytes(*int)
    }

    fn text(&mut self) -> String {
        let length = usize::try_from(self.int()).unwrap();
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8(text.to_vec()).unwrap()
    }
}

/// Bytes as ZooKeeper encodes them: with their length.
pub(crate) fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}
