//! The engine against real files, real processes and the real `flock(1)`.
#![expect(clippy::disallowed_methods, reason = "tests have a clock and processes of their own")]

mod breaking;
mod changes;
mod exclusive;
mod files;
mod helper;
mod hostile;
mod inspect;
mod interleaving;
mod interop;
mod limits;
mod memos;
mod min_hold;
mod notifications;
mod permits;
mod queue;
mod random;
mod tokens;

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{
    FileEngine,
    dir::open::Access,
    kernel::locks::{LockFile, NamePaths},
};
use crate::{
    Answer, Claim, ClaimId, Engine, EngineError, Env, Grant, Hint, Hold, How, Mode, Name, Previous, Release,
    Released, Renewed, Token,
};

const PERMIT: Mode = Mode::Permits { count: 1, limit: 2 };

/// A temporary directory with a lock directory of its own; removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("leasehold-file-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        // Independent of the umask: some tests run as another user.
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Self(path)
    }

    /// The lock directory.
    fn dir(&self) -> PathBuf {
        self.0.join("locks")
    }

    /// A new engine on the lock directory, as another process would have it. Creates the directory if it is missing.
    fn engine(&self) -> FileEngine {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(self.dir()).unwrap();
        FileEngine::open(Some(self.dir()), Env::system()).unwrap()
    }

    fn lock_file(&self, name: &str) -> PathBuf {
        self.dir().join(format!("{name}.lock"))
    }

    fn wake_pipe_dir(&self) -> PathBuf {
        self.dir().join(".bells")
    }

    fn state_file(&self, name: &str) -> PathBuf {
        self.dir().join(format!(".state/{name}.lock"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The lock file of a name that was used before, opened once more.
fn opened(engine: &FileEngine, text: &str) -> (NamePaths, LockFile) {
    let paths = NamePaths::new(&engine.dir, &name(text));
    let lock_file = LockFile::open(&engine.dir, &paths, Access::Existing).unwrap().unwrap();
    (paths, lock_file)
}

/// A claim with a new id that may wait.
fn claim(text: &str, mode: Mode) -> Claim {
    let mut id = [0; 16];
    Env::system().entropy.fill(&mut id);
    Claim {
        id: ClaimId(id),
        name: name(text),
        mode,
        ttl: Duration::from_secs(30),
        claim_time: Duration::from_secs(2),
        may_queue: true,
        tokens: 1,
        owner: Arc::from("tester"),
        stops_on_term: false,
    }
}

/// A claim that does not wait.
fn try_claim(text: &str, mode: Mode) -> Claim {
    Claim { may_queue: false, ..claim(text, mode) }
}

/// Sends the first request of a claim.
fn create(engine: &FileEngine, claim: &Claim) -> Result<Answer, EngineError> {
    pollster::block_on(engine.claim(claim, How::Create))
}

/// Asks for the state of a claim.
fn ask(engine: &FileEngine, claim: &Claim) -> Result<Answer, EngineError> {
    pollster::block_on(engine.claim(claim, How::Ask))
}

/// The grant of a claim that must hold.
#[track_caller]
fn held(answer: Result<Answer, EngineError>) -> Grant {
    match answer.unwrap() {
        Answer::Held(grant) => grant,
        other => panic!("expected a hold: {other:?}"),
    }
}

/// The hint to a claim that must wait.
#[track_caller]
fn waiting(answer: Result<Answer, EngineError>) -> Hint {
    match answer.unwrap() {
        Answer::Waiting(hint) => hint,
        other => panic!("expected to wait: {other:?}"),
    }
}

/// The hint to a claim that must be answered "taken".
#[track_caller]
fn taken(answer: Result<Answer, EngineError>) -> Hint {
    match answer.unwrap() {
        Answer::Taken(hint) => hint,
        other => panic!("expected it to be taken: {other:?}"),
    }
}

/// The request to release a claim; without a token, as for a claim that never held.
fn release_request(claim: &Claim, token: Option<Token>) -> Release {
    Release {
        id: claim.id,
        name: claim.name.clone(),
        mode: claim.mode,
        token,
        ended: Previous::Clean,
        min_hold: None,
    }
}

fn send_release(engine: &FileEngine, release: Release) -> Released {
    pollster::block_on(engine.release(&[release])).pop().unwrap()
}

/// Releases as a user does: a hold is released with its token.
fn release(engine: &FileEngine, claim: &Claim) -> Released {
    let token = match ask(engine, claim) {
        Ok(Answer::Held(grant)) => Some(grant.token),
        _ => None,
    };
    send_release(engine, release_request(claim, token))
}

/// Releases a claim that must hold or wait.
#[track_caller]
fn release_claim(engine: &FileEngine, claim: &Claim) {
    let answer = release(engine, claim);
    assert!(matches!(answer, Released::Freed), "{answer:?}");
}

fn renew(engine: &FileEngine, claim: &Claim, token: Token) -> Renewed {
    let hold = Hold { id: claim.id, name: claim.name.clone(), mode: claim.mode, token, ttl: claim.ttl };
    pollster::block_on(engine.renew(&[hold])).pop().unwrap()
}

/// The engine ends with all its claims still there, as in a process that is killed. Closing their files would not
/// suffice here: another test may be starting a process, which has copies of all our descriptors until its exec.
fn simulate_kill(engine: FileEngine) {
    engine.claims.for_each(|entry| entry.lock_file.unlock_all());
}

/// A program with default signal handlers, whatever started the test. It ends together with the test.
fn program(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "env", "--default-signal", name]);
    command
}

/// Whether a `flock(1)` that does not wait gets the lock: `-x` exclusive, `-s` shared.
fn flock_gets(file: &Path, option: &str) -> bool {
    let status = program("flock").args([option, "-n", "-E", "9"]).arg(file).arg("true").status().unwrap();
    match status.code() {
        Some(0) => true,
        Some(9) => false,
        other => panic!("flock failed: {other:?}"),
    }
}

/// A clock that the test sets.
struct ManualClock(std::sync::atomic::AtomicU64);

impl ManualClock {
    fn advance(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl crate::Clock for ManualClock {
    fn now(&self) -> crate::Instant {
        crate::Instant::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

/// The environment of the system, except for a clock that starts at the present and that the test advances.
fn env_with_manual_clock() -> (Arc<ManualClock>, Env) {
    let env = Env::system();
    let clock = Arc::new(ManualClock(env.clock.now().as_nanos().into()));
    (Arc::clone(&clock), Env { clock, ..env })
}
