//! What `leasehold break` prints: what became of the hold, and when its name is free.

use leasehold::{Error, HolderView, Name, View};
use leasehold_ops::free_when;

use crate::{
    json::{self, millis, null, number, string},
    text::{escaped, or_dash, owner_text},
};

/// A hold that was broken, and the look at its name after that.
pub(crate) struct AfterBreak<'a> {
    pub(crate) engine: &'static str,
    pub(crate) name: &'a Name,
    /// The token by which it was broken.
    pub(crate) token: u64,
    /// The name after the break, or why it is not known who holds it.
    pub(crate) look: Result<View, Error>,
}

impl AfterBreak<'_> {
    /// The hold, if it still blocks the name: as it was broken by one of its tokens, the one with the largest first
    /// token up to that.
    fn blocking(&self) -> Option<&HolderView> {
        let holders = self.look.iter().flat_map(|view| &view.holders);
        let broken = holders.filter(|holder| holder.broken && holder.token <= Some(self.token));
        broken.max_by_key(|holder| holder.token)
    }

    /// One line for people.
    pub(crate) fn text(&self) -> String {
        let (word, what) = match (&self.look, self.blocking()) {
            (Ok(_), Some(holder)) => ("broken", free_when(holder)),
            (Ok(view), None) => ("ended", holder_now(view)),
            (Err(error), _) => {
                ("broken", format!("who holds the name now is not known: {}", escaped(&error.to_string())))
            }
        };
        format!("{word}: {}, token {}: {what}\n", escaped(self.name.as_str()), self.token)
    }

    /// One object.
    pub(crate) fn json(&self) -> String {
        let blocking = self.blocking();
        let is_ended = self.look.is_ok() && blocking.is_none();
        let fields = [
            ("name", string(self.name.as_str())),
            ("engine", string(self.engine)),
            ("token", number(Some(self.token))),
            ("outcome", string(if is_ended { "ended" } else { "broken" })),
            ("free_within_ms", number(blocking.and_then(|holder| holder.remaining).map(millis))),
            ("holders", self.look.as_ref().map_or_else(|_| null(), json::holders)),
            ("problem", self.look.as_ref().err().map_or_else(null, |error| string(&error.to_string()))),
        ];
        json::object(&fields) + "\n"
    }
}

/// Who holds the name after the end of the hold.
fn holder_now(view: &View) -> String {
    match view.holders.first() {
        Some(holder) => format!("now held by {}, token {}", owner_text(holder), or_dash(holder.token)),
        None => "the name is free".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::ErrorKind;
    use serde_json::Value;

    use super::*;

    fn after(look: Result<Vec<HolderView>, Error>) -> (String, Value) {
        let name = Name::new("job").unwrap();
        let look = look.map(|holders| {
            let mut view = View::free(name.clone(), "k".into());
            view.holders = holders;
            view
        });
        let after = AfterBreak { engine: "redis", name: &name, token: 12, look };
        (after.text(), serde_json::from_str(&after.json()).unwrap())
    }

    fn holder(token: u64) -> HolderView {
        HolderView::new("i".into(), "alice".into()).token(Some(token))
    }

    #[test]
    fn a_hold_that_blocks_its_name_is_told_with_its_end() {
        let twelve = Some(Duration::from_secs(12));
        let other = holder(5).broken(true);
        let (text, json) = after(Ok(vec![other.clone(), holder(10).broken(true).times(None, twelve)]));
        assert_eq!(
            text,
            "broken: job, token 12: the name is free when the holder stops, in 12s at the latest\n"
        );
        assert_eq!((&json["outcome"], &json["free_within_ms"]), (&"broken".into(), &12_000.into()));
        assert_eq!((&json["holders"][1]["broken"], &json["problem"]), (&true.into(), &Value::Null));
    }

    #[test]
    fn a_hold_that_has_ended_is_told_with_the_holder_after_it() {
        assert_eq!(after(Ok(vec![])).0, "ended: job, token 12: the name is free\n");
        let (text, json) = after(Ok(vec![holder(13)]));
        assert_eq!(text, "ended: job, token 12: now held by alice, token 13\n");
        assert_eq!((&json["outcome"], &json["free_within_ms"]), (&"ended".into(), &Value::Null));
    }

    #[test]
    fn a_look_that_fails_is_told() {
        let (text, json) = after(Err(Error::new(ErrorKind::Unreachable, "cut\noff")));
        assert!(
            text.starts_with("broken: job, token 12: who holds the name now is not known: cut"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!((&json["outcome"], &json["holders"]), (&"broken".into(), &Value::Null));
    }
}
