//! Sessions that end while requests come in.

use std::sync::{Arc, Weak};

use leasehold_core::{
    BoxFuture, Claim, ClaimId, Contact, Diagnostic, EngineError, Env, Fault, Guarantee, How, Instant,
    Lineage, Mode, Name,
};

use super::{KeyedClaim, NumberedSession, SessionClient, ended, lock_mutex};
use crate::{
    database::Failed,
    session::{
        lock_key::Key,
        options::LONGEST_TTL,
        server::{Batch, BatchFailed, BatchReply, KeyView, NameKeys, Session, SessionEvents, SessionServer},
    },
};

/// A session that is closed, and whose end was not noticed yet.
struct Closing;

/// Opens such sessions.
struct Opener;

fn unused<T: Send + 'static>() -> BoxFuture<'static, Result<T, Failed>> {
    Box::pin(std::future::ready(Err(Failed::new(Fault::Internal, "this test does not ask it"))))
}

impl Session for Closing {
    fn exchange<'a>(&'a self, _: &'a Batch) -> BoxFuture<'a, Result<BatchReply, BatchFailed>> {
        Box::pin(std::future::pending())
    }

    fn heartbeat(&self) -> BoxFuture<'_, Result<(), BatchFailed>> {
        Box::pin(std::future::pending())
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn close(&self) {}

    fn address(&self) -> String {
        "test".to_owned()
    }

    fn id(&self) -> String {
        "1".to_owned()
    }

    fn lineage(&self) -> Lineage {
        Lineage::new(1)
    }

    fn longest_ttl(&self) -> std::time::Duration {
        LONGEST_TTL
    }

    fn max_keys(&self) -> usize {
        1
    }

    fn lock_delay(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, Failed>> {
        unused()
    }

    fn look<'a>(&'a self, _: Option<&'a [Key]>) -> BoxFuture<'a, Result<Vec<KeyView>, Failed>> {
        unused()
    }

    fn shown(&self, key: &Key) -> String {
        key.to_string()
    }

    fn how_to_end(&self, session: &str) -> String {
        session.to_owned()
    }
}

impl SessionServer for Opener {
    fn open(&self, _: u64, _: Weak<dyn SessionEvents>) -> BoxFuture<'_, Result<Arc<dyn Session>, Failed>> {
        Box::pin(std::future::ready(Ok(Arc::new(Closing) as Arc<dyn Session>)))
    }

    fn keys(&self, _: &Name) -> Result<NameKeys, EngineError> {
        Err(EngineError::new(Fault::Internal, "this test has no names"))
    }

    fn has_shared_locks(&self) -> bool {
        false
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, Failed>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn permit_keys(&self, _: &Name, _: u32) -> Result<(Vec<Key>, Key), EngineError> {
        Err(EngineError::new(Fault::Internal, "this test has no permits"))
    }
}

/// A late reply of the session would otherwise be taken for one to the new beginning.
#[tokio::test]
async fn a_session_that_was_given_up_never_begins_again() {
    let client = SessionClient::new(Arc::new(Opener), Contact::default(), &Env::system());
    let number = |client: &SessionClient| lock_mutex(&client.state).table.terms().number;
    let conn = client.session().await.unwrap();
    assert_eq!(number(&client), conn.number);
    client.end_session(&conn, &ended());
    assert_eq!(number(&client), 0);
    // The connection is not known to be closed, so the next request gets it once more.
    let again = client.session().await.unwrap();
    assert_eq!(again.number, conn.number);
    assert_eq!(number(&client), 0);
}

/// A task that was started to send the requests of a session runs after that session ended: another task sends those of
/// the next session.
#[tokio::test]
async fn requests_of_a_new_session_do_not_wait_for_a_task_of_the_old_one() {
    let client = SessionClient::new(Arc::new(Opener), Contact::default(), &Env::system());
    let new = client.session().await.unwrap();
    let old = Arc::new(NumberedSession { number: new.number - 1, session: Arc::new(Closing) });
    lock_mutex(&client.state).is_sender_due = true;
    let (id, name, mode) = (ClaimId([1; 16]), Name::new("n").unwrap(), Mode::Exclusive);
    let (ttl, claim_time) = (LONGEST_TTL, LONGEST_TTL);
    let (may_queue, tokens, owner, stops_on_term) = (true, 1, "test".into(), false);
    let claim = Claim { id, name, mode, ttl, claim_time, may_queue, tokens, owner, stops_on_term };
    let keys = NameKeys { lock: Key::Bigint(1), waiters: None, poller: None };
    let asked = Instant::from_nanos(1);
    client.step(|state| {
        state.table.claim(KeyedClaim { claim: &claim, keys, permit_keys: None, asked }, How::Create, asked);
    });
    let in_flight = || lock_mutex(&client.state).batches_in_flight;
    tokio::task::yield_now().await;
    assert_eq!(in_flight(), 0);
    Arc::clone(&client).send_batch(old).await;
    tokio::task::yield_now().await;
    assert_eq!(in_flight(), 1);
}
