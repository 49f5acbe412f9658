//! The arguments of Python calls: errors name the argument and say what it must be.

use std::time::Duration;

use leasehold::Error;
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyInt, PyString, PyTuple},
};

use crate::errors::exception;

/// The longest duration: what the library takes as forever is shorter.
const LONGEST_SECONDS: f64 = 1e15;

/// A duration: seconds as a number, or a `timedelta`. `None` stays `None`.
pub fn duration(argument: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(value) = value.filter(|value| !value.is_none()) else { return Ok(None) };
    let seconds = seconds(argument, value)?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err(wrong_value(value.py(), format!("{argument} must not be negative, got {seconds} s")));
    }
    if seconds > LONGEST_SECONDS {
        let forever = if argument == "wait" { ": leave it out to wait until the grant" } else { "" };
        return Err(wrong_value(value.py(), format!("{argument} is too long: {seconds:e} s{forever}")));
    }
    Ok(Some(Duration::from_secs_f64(seconds)))
}

/// A number without a sign. `None` stays `None`.
pub fn count<T>(argument: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<T>>
where
    T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    let Some(value) = value.filter(|value| !value.is_none()) else { return Ok(None) };
    if value.is_instance_of::<PyBool>() || !value.is_instance_of::<PyInt>() {
        return Err(PyTypeError::new_err(format!("{argument} must be int, not {}", type_name(value))));
    }
    let number = value.extract().map(Some);
    number.map_err(|_| wrong_value(value.py(), format!("{argument} is out of range: {value}")))
}

/// The permits that are asked for, and the number that there is: `n` and `limit` of the user.
pub fn permits_of(pair: &Bound<'_, PyTuple>) -> PyResult<(u32, u32)> {
    let (n, limit) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
    let number = |argument, value: &Bound<'_, PyAny>| {
        let missing = || PyTypeError::new_err(format!("{argument} must be int, not None"));
        count(argument, Some(value))?.ok_or_else(missing)
    };
    Ok((number("n", &n)?, number("limit", &limit)?))
}

/// `True` or `False`.
pub fn flag(argument: &str, value: Option<&Bound<'_, PyAny>>, default: bool) -> PyResult<bool> {
    let Some(value) = value else { return Ok(default) };
    let wrong_type =
        |_| PyTypeError::new_err(format!("{argument} must be True or False, not {}", type_name(value)));
    value.cast::<PyBool>().map(|flag| flag.is_true()).map_err(wrong_type)
}

/// A callback.
pub fn callable(py: Python<'_>, value: Py<PyAny>) -> PyResult<Py<PyAny>> {
    if value.bind(py).is_callable() {
        return Ok(value);
    }
    Err(PyTypeError::new_err(format!("callback must be callable, not {}", type_name(value.bind(py)))))
}

/// The exception for an argument of the right type with a wrong value.
pub fn wrong_value(py: Python<'_>, message: String) -> PyErr {
    exception(py, &Error::invalid(message), None)
}

fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string())
}

fn seconds(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    let wrong_type = || {
        PyTypeError::new_err(format!(
            "{argument} must be seconds (int or float) or a timedelta, not {}",
            type_name(value)
        ))
    };
    // `True` is an int in Python, but no duration.
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type());
    }
    if let Ok(seconds) = value.extract::<f64>() {
        return Ok(seconds);
    }
    let Ok(total_seconds) = value.getattr("total_seconds") else { return Err(wrong_type()) };
    total_seconds.call0().and_then(|seconds| seconds.extract()).map_err(|_| wrong_type())
}

/// A text: `str` without surrogates.
pub fn text(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let Ok(text) = value.cast::<PyString>() else {
        return Err(PyTypeError::new_err(format!("{argument} must be str, not {}", type_name(value))));
    };
    let encoded = text.to_cow().map(|text| text.into_owned());
    encoded
        .map_err(|_| wrong_value(value.py(), format!("{argument} has surrogates, which UTF-8 cannot encode")))
}

/// A text, or nothing.
pub fn optional_text(argument: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
    value.filter(|value| !value.is_none()).map(|value| text(argument, value)).transpose()
}
