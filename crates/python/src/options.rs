//! The options that requests for one name and for several names have in common.

use std::time::Duration;

use leasehold::Error;
use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};

use crate::{
    arguments::{count, duration, flag, text, wrong_value},
    errors::exception,
    locks::{Locks, Owner},
};

/// The longest minimum hold time, as in the command: nobody wants to wait longer for a mistake in the unit.
const LONGEST_MIN_HOLD: Duration = Duration::from_secs(366 * 24 * 60 * 60);

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

/// What an election and work that is done one time say of their lease.
pub struct Lease {
    pub ttl: Option<Duration>,
    pub renew_every: Option<Duration>,
    pub max_hold: Option<Duration>,
    pub max_waiting: Option<usize>,
}

impl Lease {
    /// [`check`] for the request that will have this lease.
    pub fn check(self, py: Python<'_>, locks: &Py<Locks>, name: &str) -> PyResult<()> {
        let Self { ttl, renew_every, max_hold, max_waiting } = self;
        let options = Options {
            ttl,
            wait: None,
            at_least: None,
            renew: true,
            renew_every,
            max_hold,
            attempts: None,
            max_waiting,
            owner: None,
        };
        check(py, locks, &options.one_name(locks.get().native(py)?.mutex(name)))
    }
}

/// Finds a wrong name or option of a request that is being made, and not only when it is used. Asks no server.
pub fn check(py: Python<'_>, locks: &Py<Locks>, request: &leasehold::Request) -> PyResult<()> {
    request.check().map_err(|error| {
        let error = if error.is_invalid() { error } else { Error::invalid(error.to_string()) };
        exception(py, &error, Some(locks))
    })
}

impl Options {
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    pub fn new(
        ttl: Option<&Bound<'_, PyAny>>,
        wait: Option<&Bound<'_, PyAny>>,
        at_least: Option<&Bound<'_, PyAny>>,
        owner: Option<&Bound<'_, PyAny>>,
        renew: Option<&Bound<'_, PyAny>>,
        renew_every: Option<&Bound<'_, PyAny>>,
        max_hold: Option<&Bound<'_, PyAny>>,
        attempts: Option<&Bound<'_, PyAny>>,
        max_waiting: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let at_least_time = duration("at_least", at_least)?;
        if let (Some(time), Some(value)) = (at_least_time, at_least)
            && time > LONGEST_MIN_HOLD
        {
            let message = format!("at_least is in seconds, and at most 366 days: got {} s", time.as_secs());
            return Err(wrong_value(value.py(), message));
        }
        Ok(Self {
            ttl: duration("ttl", ttl)?,
            wait: duration("wait", wait)?,
            at_least: at_least_time,
            renew: flag("renew", renew, true)?,
            renew_every: duration("renew_every", renew_every)?,
            max_hold: duration("max_hold", max_hold)?,
            attempts: count("attempts", attempts)?,
            max_waiting: count("max_waiting", max_waiting)?,
            owner: owner.filter(|owner| !owner.is_none()).map(OwnerOption::new).transpose()?,
        })
    }

    /// Whether there is nothing to check.
    pub const fn are_defaults(&self) -> bool {
        self.ttl.is_none()
            && self.renew_every.is_none()
            && self.max_hold.is_none()
            && self.attempts.is_none()
            && self.max_waiting.is_none()
    }

    /// The wait of one call, which replaces that of the request.
    pub fn wait_or(&self, wait: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
        Ok(duration("wait", wait)?.or(self.wait))
    }

    /// Whether its owner is an identity, which takes its locks again.
    pub const fn takes_again(&self) -> bool {
        matches!(self.owner, Some(OwnerOption::Identity(_)))
    }

    /// Whether all holds have one owner, or none of their own.
    pub const fn owner_is_fixed(&self) -> bool {
        !matches!(self.owner, Some(OwnerOption::Label(_)))
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
