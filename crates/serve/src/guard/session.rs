//! Sessions of browsers. The browser has a random id in a cookie; the server keeps only a signature of it, in memory.

use std::{
    collections::VecDeque,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{How, Identity};
use crate::secret::{ProcessKey, random};

/// How long a session lasts: a shift.
const LIFE_MS: u64 = 12 * 3600 * 1000;
/// How many sessions there are at most; the oldest gives way.
const MAX_SESSIONS: usize = 256;

/// The sessions, oldest first.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<VecDeque<Session>>);

struct Session {
    /// The signature of its id.
    signature: String,
    identity: Identity,
    ends_at: u64,
}

impl Sessions {
    /// Begins a session at `now`, and returns its id.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn begin(&self, key: &ProcessKey, identity: Identity, now: u64) -> io::Result<String> {
        let id = random()?;
        let signature = sign(key, &id);
        let identity = Identity { how: How::Session, form_key: signature.clone(), ..identity };
        let mut sessions = self.lock();
        sessions.retain(|session| session.ends_at > now);
        if sessions.len() == MAX_SESSIONS {
            sessions.pop_front();
        }
        sessions.push_back(Session { signature, identity, ends_at: now + LIFE_MS });
        Ok(id)
    }

    /// Who has this session at `now`.
    pub(crate) fn identity(&self, key: &ProcessKey, id: &str, now: u64) -> Option<Identity> {
        let signature = sign(key, id);
        self.by_signature(&signature, now)
    }

    /// Who has the session with this signature at `now`.
    pub(crate) fn by_signature(&self, signature: &str, now: u64) -> Option<Identity> {
        let sessions = self.lock();
        let is_it = |session: &&Session| session.signature == signature && session.ends_at > now;
        sessions.iter().find(is_it).map(|session| session.identity.clone())
    }

    /// Ends a session.
    pub(crate) fn end(&self, signature: &str) {
        self.lock().retain(|session| session.signature != signature);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sign(key: &ProcessKey, id: &str) -> String {
    key.sign(&["session", id])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Role;

    #[test]
    fn a_session_ends_by_time_by_logout_and_when_there_are_too_many() {
        let (key, sessions) = (ProcessKey::new().unwrap(), Sessions::default());
        let begin = |now| sessions.begin(&key, Identity::new("ada", How::Token, Role::View), now).unwrap();
        let id = begin(0);
        let ada = sessions.identity(&key, &id, LIFE_MS - 1).unwrap();
        assert_eq!((ada.how, ada.role), (How::Session, Role::View));
        assert_eq!(sessions.identity(&key, &id, LIFE_MS), None);
        assert_eq!(sessions.identity(&ProcessKey::new().unwrap(), &id, 1), None);
        sessions.end(&ada.form_key);
        assert_eq!(sessions.identity(&key, &id, 1), None);
        let oldest = begin(1);
        let ids: Vec<_> = (0..MAX_SESSIONS).map(|_| begin(2)).collect();
        assert_eq!(sessions.identity(&key, &oldest, 3), None);
        assert!(ids.iter().all(|id| sessions.identity(&key, id, 3).is_some()));
    }
}
