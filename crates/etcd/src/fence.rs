//! Fences stored on the cluster that holds the locks.
//!
//! [`HeldBy`] is the condition under which a lock is still held. A transaction of the user that includes this condition
//! does nothing after the hold has ended. A [`Fence`] stores the largest token that it was shown. So the fence also
//! stops a holder whose key still exists, as soon as another program has shown a larger token to the fence; and the
//! fence can seal reads.

use std::sync::Arc;

use leasehold_core::{ClaimId, EngineError};

use crate::{
    EtcdEngine,
    claims::State,
    client::Client,
    error::unreadable,
    keys,
    wire::{Put, Range, Txn, compare},
};

/// The digits of a stored token: text of this width sorts as the numbers do.
const DIGITS: usize = 20;

/// The condition under which a lock is held: this key has this create revision. Any etcd client can use it in a
/// transaction; the official client writes it `Compare(CreateRevision(key), "=", create_revision)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBy {
    /// The key of the hold.
    pub key: Vec<u8>,
    /// The create revision of that key, from which the tokens of the hold are computed.
    pub create_revision: i64,
}

/// A fence around data on the cluster that holds the locks.
#[derive(Clone)]
pub struct Fence {
    client: Arc<Client>,
    /// The key that stores the largest token.
    key: Vec<u8>,
}

/// The result of a guarded step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// The step was applied, at this revision.
    Done(i64),
    /// Nothing was applied: the fence was shown this larger token before.
    Overtaken(u64),
}

impl EtcdEngine {
    /// The condition under which this claim, granted by this engine, still holds; `None` if it does not hold.
    #[must_use]
    pub fn held_by(&self, id: ClaimId) -> Option<HeldBy> {
        let mut claims = self.client.claims();
        let entry = claims.get(id)?;
        let State::Held { own: revision, .. } = entry.state else { return None };
        Some(HeldBy { key: entry.data.hold_key().to_vec(), create_revision: revision })
    }
}

impl Fence {
    /// The fence around `resource`: any text on which all holders agree.
    #[must_use]
    pub fn new(engine: &EtcdEngine, resource: &str) -> Self {
        let client = Arc::clone(&engine.client);
        let key = keys::fence_key(client.prefix(), resource);
        Self { client, key }
    }

    /// Shows the fence this token, then writes the values under their keys, in one step. If the fence was shown a
    /// larger token before, nothing is written. Without values this is the *seal*: done before the first read, it
    /// guarantees that a holder with a smaller token cannot change what is read afterwards.
    ///
    /// # Errors
    /// The errors of a claim. If the reply is lost, it is unknown whether the step was applied; a second call with the
    /// same arguments writes the same values.
    pub async fn write(&self, token: u64, values: &[(Vec<u8>, Vec<u8>)]) -> Result<Guarded, EngineError> {
        let (digits, next_digits) = (digits(token), digits(token.saturating_add(1)));
        let put =
            |key: &[u8], value: &[u8]| Put { key: key.to_vec(), value: value.to_vec(), lease: 0 }.into();
        let mut steps = vec![put(&self.key, &digits)];
        steps.extend(values.iter().map(|(key, value)| put(key, value)));
        // Two conditions, in two requests one after the other, because a condition on the value of a missing key fails.
        for fence_is_new in [false, true] {
            let condition = if fence_is_new {
                compare::created(&self.key, 0)
            } else {
                compare::value_before(&self.key, &next_digits)
            };
            let txn = Txn {
                compare: vec![condition],
                success: steps.clone(),
                failure: vec![Range::key(&self.key).into()],
            };
            let (_, mut reply) = self.client.ask(txn).await?;
            if reply.succeeded {
                return Ok(Guarded::Done(reply.revision()));
            }
            let stored = reply.range(0).ok_or_else(unreadable)?.kvs.pop();
            if let Some(stored) = stored {
                let stored_token = std::str::from_utf8(&stored.value).ok().and_then(|text| text.parse().ok());
                let stored_token = stored_token.ok_or_else(|| {
                    EngineError::new(
                        leasehold_core::Fault::Misconfigured,
                        "the key of the fence holds something else than a token",
                    )
                })?;
                if stored_token > token {
                    return Ok(Guarded::Overtaken(stored_token));
                }
                // Another client created the key between the two requests.
            }
        }
        Err(EngineError::new(leasehold_core::Fault::Retry, "the fence was made meanwhile: try again"))
    }
}

/// The stored text of a token.
fn digits(token: u64) -> Vec<u8> {
    format!("{token:0DIGITS$}").into_bytes()
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fence").field("key", &String::from_utf8_lossy(&self.key)).finish_non_exhaustive()
    }
}
