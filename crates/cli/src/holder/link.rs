//! The socket by which `check` and `release` reach a holder process of the same machine, network namespace and user.
//!
//! Its address is in the abstract namespace and contains the id of the claim, so that no file is left. A local user who
//! can read the id from the server can take the address first. So both ends check the user of the other end, a holder
//! process without its address holds the lock all the same, and a command that reaches none asks the server. A request
//! is one line: a verb and the text of the token.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::AsFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    time::Duration,
};

use leasehold::Handle;
use rustix::{
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
        sockopt::socket_peercred,
    },
    process::geteuid,
};

/// How long each end waits for the next bytes of the other end.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a command waits for the answer of a holder process, which asks the engine first: longer than the holder
/// process waits for the engine.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// The longest request or answer.
const MAX_LINE: u64 = 1024;

/// What a holder process answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The hold is held; or it was released.
    Done,
    /// The hold was over before, with the reason.
    Over(String),
    /// The engine did not say.
    Unknown(String),
}

impl Answer {
    fn line(&self) -> String {
        let one_line =
            |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        match self {
            Self::Done => "done\n".to_owned(),
            Self::Over(why) => format!("over {}\n", one_line(why)),
            Self::Unknown(why) => format!("unknown {}\n", one_line(why)),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let line = line.strip_suffix('\n')?;
        match line.split_once(' ').unwrap_or((line, "")) {
            ("done", "") => Some(Self::Done),
            ("over", why) => Some(Self::Over(why.to_owned())),
            ("unknown", why) => Some(Self::Unknown(why.to_owned())),
            _ => None,
        }
    }
}

/// What a command asks of a holder process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Check,
    Release,
}

/// The end of the holder process.
pub(crate) struct Listener {
    socket: UnixListener,
    token: String,
}

impl Listener {
    /// Listens for commands about this handle. `None`: another process has the address.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn bind(handle: &Handle) -> io::Result<Option<Self>> {
        let address = SocketAddr::from_abstract_name(address(handle))?;
        let socket = match UnixListener::bind_addr(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
            bound => bound?,
        };
        socket.set_nonblocking(true)?;
        Ok(Some(Self { socket, token: handle.token().to_string() }))
    }

    /// The next request. `None`: there is none, or the other end is of another user or does not speak. It waits for the
    /// line of one request, at most [`PATIENCE`]; the hold is renewed by another thread.
    ///
    /// # Errors
    /// If the system refuses the connection to this process, which has too many descriptors.
    pub(crate) fn next(&self) -> io::Result<Option<(Request, UnixStream)>> {
        match self.socket.accept() {
            Ok((stream, _)) => Ok(self.request_of(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The request of this connection.
    fn request_of(&self, stream: UnixStream) -> Option<(Request, UnixStream)> {
        stream.set_nonblocking(false).ok()?;
        if !is_trusted(&stream) {
            return None;
        }
        let line = read_line(&stream, PATIENCE).ok()?;
        let request = match line.trim_end().split_once(' ') {
            Some(("check", token)) if token == self.token => Request::Check,
            Some(("release", token)) if token == self.token => Request::Release,
            _ => return None,
        };
        Some((request, stream))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Answers a request.
pub(crate) fn answer(mut stream: &UnixStream, answer: &Answer) {
    // A command that has gone needs no answer.
    let _ = stream.write_all(answer.line().as_bytes());
}

/// Asks the holder process of this handle. `None`: there is no holder process here, or it ends now, or it is stopped.
pub(crate) fn ask(handle: &Handle, verb: &str) -> Option<Answer> {
    let stream = connect_to(handle)?;
    if stopped_peer(&stream).is_some() {
        return None;
    }
    (&stream).write_all(format!("{verb} {}\n", handle.token()).as_bytes()).ok()?;
    Answer::parse(&read_line(&stream, ANSWER_PATIENCE).ok()?)
}

/// The pid of the holder process of this handle, if it is here and was stopped by a signal or a debugger.
pub(crate) fn stopped(handle: &Handle) -> Option<i32> {
    stopped_peer(&connect_to(handle)?)
}

fn stopped_peer(stream: &UnixStream) -> Option<i32> {
    let pid = socket_peercred(stream).ok()?.pid.as_raw_nonzero().get();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may contain any characters.
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    matches!(state, 'T' | 't').then_some(pid)
}

/// Whether a holder process of this handle is here.
pub(crate) fn is_there(handle: &Handle) -> bool {
    connect_to(handle).is_some()
}

fn connect_to(handle: &Handle) -> Option<UnixStream> {
    let address = SocketAddrUnix::new_abstract_name(address(handle).as_bytes()).ok()?;
    // A connection that waits would wait for ever if the process at the address accepts none.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&socket, &address).ok()?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    is_trusted(&stream).then_some(stream)
}

/// The address in the abstract namespace.
fn address(handle: &Handle) -> String {
    format!("leasehold-holder/{}", handle.id())
}

/// Whether the other end is of this user or of root.
fn is_trusted(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid == geteuid() || peer.uid.is_root())
}

/// Reads one line, up to [`MAX_LINE`].
fn read_line(stream: &UnixStream, patience: Duration) -> io::Result<String> {
    stream.set_read_timeout(Some(patience))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE)).read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_from_its_line() {
        for answer in
            [Answer::Done, Answer::Over("an operator broke it".into()), Answer::Unknown(String::new())]
        {
            assert_eq!(Answer::parse(&answer.line()), Some(answer));
        }
        assert_eq!(Answer::Over("a\nb".into()).line(), "over a b\n");
        for wrong in ["done", "done x\n", "no\n", ""] {
            assert_eq!(Answer::parse(wrong), None, "{wrong:?}");
        }
    }

    fn new_handle() -> Handle {
        let locks = leasehold::Locks::connect("memory:").unwrap();
        locks.mutex("x").blocking().acquire().unwrap().handle()
    }

    #[test]
    fn a_taken_address_is_no_failure() {
        let handle = new_handle();
        let first = Listener::bind(&handle).unwrap();
        assert!(first.is_some() && is_there(&handle));
        assert!(Listener::bind(&handle).unwrap().is_none());
        drop(first);
        assert!(!is_there(&handle));
    }

    /// A process of another user could keep every command waiting.
    #[test]
    fn a_full_queue_of_connections_is_not_waited_for() {
        let handle = new_handle();
        let listener = Listener::bind(&handle).unwrap().unwrap();
        rustix::net::listen(&listener.socket, 1).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| connect_to(&handle)).take(10).collect();
        assert!((1..10).contains(&waiting.len()), "{}", waiting.len());
        assert_eq!(ask(&handle, "check"), None);
    }
}
