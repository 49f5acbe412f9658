//! The messages that the scripts publish on the channels of this client.

use std::time::Duration;

use leasehold_core::{ClaimId, Grant, Name, Token};

use crate::{previous, token_counter::LINEAGE};

/// A message about one claim of this client.
#[derive(Debug)]
pub(crate) enum Message {
    /// A release granted the name to the claim.
    Granted {
        name: Name,
        id: ClaimId,
        grant: Grant,
        /// The server's clock at the grant.
        granted_at: Duration,
    },
    /// An operator broke the hold.
    Broken { name: Name, id: ClaimId },
    /// The state of the name changed: the claim must ask again. The scripts call this message `ring`.
    Recheck { name: Name, id: ClaimId },
    /// The memo of the name changed, or the hold that wrote it ended.
    Memo { name: Name },
}

impl Message {
    /// Parses `granted <id> <token> <tokens> <claim time ms> <server us> <how the previous hold ended> <lock>`, `broken
    /// <id> <lock>`, `ring <id> <lock>` or `memo <lock>`. Returns `None` for any other text, and for a lock key that
    /// does not begin with the prefix.
    pub(crate) fn parse(message: &[u8], prefix: &str) -> Option<Self> {
        let text = std::str::from_utf8(message).ok()?;
        if let Some(rest) = text.strip_prefix("broken ") {
            let (id, name) = id_and_name(rest, prefix)?;
            return Some(Self::Broken { name, id });
        }
        if let Some(rest) = text.strip_prefix("ring ") {
            let (id, name) = id_and_name(rest, prefix)?;
            return Some(Self::Recheck { name, id });
        }
        if let Some(lock) = text.strip_prefix("memo ") {
            return Some(Self::Memo { name: name_of(lock, prefix)? });
        }
        let mut words = text.strip_prefix("granted ")?.splitn(7, ' ');
        let mut word = || words.next();
        let id = ClaimId::read(word()?)?;
        let token = Token { lineage: LINEAGE, number: word()?.parse().ok()? };
        let tokens = word()?.parse().ok()?;
        let ttl = Some(Duration::from_millis(word()?.parse().ok()?));
        let granted_at = Duration::from_micros(word()?.parse().ok()?);
        let previous = previous::from_letter(word()?);
        let name = name_of(word()?, prefix)?;
        Some(Self::Granted { name, id, grant: Grant { token, tokens, ttl, previous }, granted_at })
    }
}

/// The name of a lock key; `None` for a key that does not begin with the prefix, or whose rest is not a valid name.
pub(crate) fn name_of(lock: &str, prefix: &str) -> Option<Name> {
    Name::new(lock.strip_prefix(prefix)?).ok()
}

/// Parses `<id> <lock>`.
fn id_and_name(text: &str, prefix: &str) -> Option<(ClaimId, Name)> {
    let (id, lock) = text.split_once(' ')?;
    Some((ClaimId::read(id)?, name_of(lock, prefix)?))
}

#[cfg(test)]
mod tests {
    use leasehold_core::Previous;

    use super::*;

    const ID: &str = "000102030405060708090a0b0c0d0e0f";

    fn parse(text: &str) -> Option<Message> {
        Message::parse(text.as_bytes(), "lock:")
    }

    #[test]
    fn a_message_has_all_its_parts() {
        let is_expected = |name: &Name, id: ClaimId| (name.as_str(), id.to_string().as_str()) == ("a b", ID);
        let message = parse(&format!("granted {ID} 17 3 2000 5000000 l lock:a b"));
        let Some(Message::Granted { name, id, grant, granted_at }) = message else { panic!("{message:?}") };
        assert!(is_expected(&name, id));
        assert_eq!((grant.token.number, grant.tokens, grant.previous), (17, 3, Previous::Lapsed));
        assert_eq!((grant.ttl, granted_at), (Some(Duration::from_secs(2)), Duration::from_secs(5)));
        let broken = parse(&format!("broken {ID} lock:a b"));
        assert!(matches!(broken, Some(Message::Broken { name, id }) if is_expected(&name, id)));
        let recheck = parse(&format!("ring {ID} lock:a b"));
        assert!(matches!(recheck, Some(Message::Recheck { name, id }) if is_expected(&name, id)));
        let memo = parse("memo lock:a b");
        assert!(matches!(memo, Some(Message::Memo { name }) if name.as_str() == "a b"));
    }

    #[test]
    fn other_texts_are_no_messages() {
        for text in [
            "",
            "granted",
            "granted x 1 1 1 1 c lock:a",
            "granted 1 1 1 1 c lock:a",
            &format!("granted {ID} x 1 1 1 c lock:a"),
            &format!("granted {ID} 1 1 1 1 c other:a"),
            &format!("granted {ID} 1 1 1 1 c lock:"),
            &format!("broken {ID}"),
            &format!("ring {ID}"),
            "memo",
            "memo other:a",
            &format!("+{ID}"),
        ] {
            assert!(parse(text).is_none(), "{text:?}");
        }
        assert!(Message::parse(b"broken \xff", "lock:").is_none());
    }
}
