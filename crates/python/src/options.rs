//! The options that requests for one name and for several names have in common.

use std::time::Duration;

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};

use crate::{
    arguments::{duration, text},
    locks::Owner,
};

/// How to acquire, and for how long.
pub struct Options {
    ttl: Option<Duration>,
    /// For how long to wait; zero: one try; `None`: until the grant.
    pub wait: Option<Duration>,
    /// For how long the name stays taken, from the grant on.
    pub at_least: Option<Duration>,
    renew: bool,
    renew_every: Option<Duration>,
    max_hold: Option<Duration>,
    attempts: Option<u32>,
    max_waiting: Option<usize>,
    owner: Option<OwnerOption>,
}

/// The owner of each hold.
enum OwnerOption {
    /// A new identity for each hold, with this text.
    Label(String),
    Identity(leasehold::Owner),
}

impl OwnerOption {
    fn new(owner: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(owner) = owner.cast::<Owner>() {
            return Ok(Self::Identity(owner.get().0.clone()));
        }
        text("owner", owner)
            .map(Self::Label)
            .map_err(|_| PyTypeError::new_err("owner must be a str or a leasehold.Owner"))
    }
}

/// A request of the library with these options. The two kinds of requests take them by methods of the same names.
macro_rules! configure {
    ($method:ident, $request:ty) => {
        pub fn $method(&self, request: $request) -> $request {
            let mut request = request.renew(self.renew);
            if let Some(ttl) = self.ttl {
                request = request.ttl(ttl);
            }
            if let Some(interval) = self.renew_every {
                request = request.renew_every(interval);
            }
            if let Some(max_hold) = self.max_hold {
                request = request.max_hold(max_hold);
            }
            if let Some(attempts) = self.attempts {
                request = request.attempts(attempts);
            }
            if let Some(most) = self.max_waiting {
                request = request.max_waiting(most);
            }
            match &self.owner {
                Some(OwnerOption::Label(label)) => request.owner(leasehold::Owner::new(label)),
                Some(OwnerOption::Identity(owner)) => request.owner(owner.clone()),
                None => request,
            }
        }
    };
}

impl Options {
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    pub fn new(
        ttl: Option<&Bound<'_, PyAny>>,
        wait: Option<&Bound<'_, PyAny>>,
        at_least: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, PyAny>>,
        renew: bool,
        renew_every: Option<&Bound<'_, PyAny>>,
        max_hold: Option<&Bound<'_, PyAny>>,
        attempts: Option<u32>,
        max_waiting: Option<usize>,
    ) -> PyResult<Self> {
        Ok(Self {
            ttl: duration("ttl", ttl)?,
            wait: duration("wait", wait)?,
            at_least: duration("at_least", at_least)?,
            renew,
            renew_every: duration("renew_every", renew_every)?,
            max_hold: duration("max_hold", max_hold)?,
            attempts,
            max_waiting,
            owner: owner.filter(|owner| !owner.is_none()).map(OwnerOption::new).transpose()?,
        })
    }

    /// The wait of one call, which replaces that of the request.
    pub fn wait_or(&self, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
        Ok(duration("wait", wait)?.or(self.wait))
    }

    /// Whether its owner is an identity, which takes its locks again.
    pub const fn takes_again(&self) -> bool {
        matches!(self.owner, Some(OwnerOption::Identity(_)))
    }

    configure!(one_name, leasehold::Request);
    configure!(several_names, leasehold::All);

    /// The keywords that give these options.
    pub fn keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let keywords = PyDict::new(py);
        let durations = [
            ("ttl", self.ttl),
            ("wait", self.wait),
            ("at_least", self.at_least),
            ("renew_every", self.renew_every),
            ("max_hold", self.max_hold),
        ];
        for (key, duration) in durations {
            if let Some(duration) = duration {
                keywords.set_item(key, duration.as_secs_f64())?;
            }
        }
        keywords.set_item("renew", self.renew)?;
        keywords.set_item("attempts", self.attempts)?;
        keywords.set_item("max_waiting", self.max_waiting)?;
        match &self.owner {
            Some(OwnerOption::Label(label)) => keywords.set_item("owner", label)?,
            Some(OwnerOption::Identity(_)) => {
                return Err(PyTypeError::new_err(
                    "a leasehold.Owner is of one process: a request with it cannot be pickled; give owner= a str",
                ));
            }
            None => {}
        }
        Ok(keywords)
    }
}
