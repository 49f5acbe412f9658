//! Reads the answers of scripts.

use std::time::Duration;

use leasehold_core::{EngineError, Fault};
use redis::Value;
use smallvec::SmallVec;

/// The items of an answer, one after the other.
pub(crate) struct Reply(smallvec::IntoIter<[Value; 1]>);

impl Reply {
    pub(crate) fn new(items: impl Into<SmallVec<[Value; 1]>>) -> Self {
        Self(items.into().into_iter())
    }

    /// The items of an answer that is a list.
    pub(crate) fn of(value: Value) -> Result<Self, EngineError> {
        match value {
            Value::Array(items) => Ok(Self::new(items)),
            _ => Err(unreadable()),
        }
    }

    /// The next item as a number.
    pub(crate) fn number(&mut self) -> Result<i64, EngineError> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(number),
            Some(Value::BulkString(text)) => {
                std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).ok_or_else(unreadable)
            }
            _ => Err(unreadable()),
        }
    }

    /// The next item as a number that is not negative.
    pub(crate) fn count<T: TryFrom<i64>>(&mut self) -> Result<T, EngineError> {
        T::try_from(self.number()?).map_err(|_| unreadable())
    }

    /// The next item as milliseconds; `None` if it is negative.
    pub(crate) fn millis(&mut self) -> Result<Option<Duration>, EngineError> {
        Ok(u64::try_from(self.number()?).ok().map(Duration::from_millis))
    }

    /// The next item as text; invalid UTF-8 is replaced.
    pub(crate) fn text(&mut self) -> Result<String, EngineError> {
        match self.0.next() {
            Some(Value::BulkString(text)) => Ok(String::from_utf8(text)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())),
            Some(Value::SimpleString(text)) => Ok(text),
            Some(Value::Okay) => Ok("OK".to_owned()),
            _ => Err(unreadable()),
        }
    }

    /// The next item as bytes.
    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, EngineError> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            _ => Err(unreadable()),
        }
    }

    /// All remaining items, as text.
    pub(crate) fn all_text(&mut self) -> Result<Vec<String>, EngineError> {
        (0..self.0.len()).map(|_| self.text()).collect()
    }

    /// The next item as a list of texts.
    pub(crate) fn texts(&mut self) -> Result<Vec<String>, EngineError> {
        match self.0.next() {
            Some(Value::Array(items)) => Self::new(items).all_text(),
            _ => Err(unreadable()),
        }
    }

    /// The next item as a list of items.
    pub(crate) fn list(&mut self) -> Result<Vec<Self>, EngineError> {
        match self.0.next() {
            Some(Value::Array(items)) => items.into_iter().map(Self::of).collect(),
            _ => Err(unreadable()),
        }
    }
}

/// The error for an answer that does not have the expected form.
pub(crate) fn unreadable() -> EngineError {
    EngineError::new(
        Fault::Internal,
        "the server's answer makes no sense: is this a Redis-compatible server?",
    )
}
