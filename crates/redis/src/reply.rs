//! Reads the answers of scripts.

use std::{time::Duration, vec};

use leasehold_core::{EngineError, Fault};
use redis::Value;

/// The items of an answer, one after the other.
pub(crate) struct Reply(vec::IntoIter<Value>);

impl Reply {
    pub(crate) fn new(value: Value) -> Result<Self, EngineError> {
        match value {
            Value::Array(items) => Ok(Self(items.into_iter())),
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

    /// The next item as milliseconds; none if it is negative.
    pub(crate) fn millis(&mut self) -> Result<Option<Duration>, EngineError> {
        Ok(u64::try_from(self.number()?).ok().map(Duration::from_millis))
    }

    /// The next item as text; what is no UTF-8 is replaced.
    pub(crate) fn text(&mut self) -> Result<String, EngineError> {
        match self.0.next() {
            Some(Value::BulkString(text)) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Some(Value::SimpleString(text)) => Ok(text),
            Some(Value::Okay) => Ok("OK".to_owned()),
            _ => Err(unreadable()),
        }
    }

    /// The next item as a list of texts.
    pub(crate) fn texts(&mut self) -> Result<Vec<String>, EngineError> {
        match self.0.next() {
            Some(list @ Value::Array(_)) => {
                let mut items = Self::new(list)?;
                (0..items.0.len()).map(|_| items.text()).collect()
            }
            _ => Err(unreadable()),
        }
    }

    /// The next item as a list of items.
    pub(crate) fn list(&mut self) -> Result<Vec<Self>, EngineError> {
        match self.0.next() {
            Some(Value::Array(items)) => items.into_iter().map(Self::new).collect(),
            _ => Err(unreadable()),
        }
    }
}

fn unreadable() -> EngineError {
    EngineError::new(Fault::Internal, "the server's answer makes no sense: is this a Redis-compatible server?")
}
