//! The arguments of Python calls: errors name the argument and say what it must be.

use std::time::Duration;

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBool, PyString},
};

/// The longest duration: what the library takes as forever is shorter.
const LONGEST_SECONDS: f64 = 1e15;

/// A duration: seconds as a number, or a `timedelta`. `None` stays `None`.
pub fn duration(argument: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(value) = value.filter(|value| !value.is_none()) else { return Ok(None) };
    let seconds = seconds(argument, value)?;
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!("{argument} must not be negative, got {seconds} s")));
    }
    if seconds > LONGEST_SECONDS {
        return Err(PyValueError::new_err(format!("{argument} is too long: {seconds} s")));
    }
    Ok(Some(Duration::from_secs_f64(seconds)))
}

fn seconds(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    let wrong_type = || {
        let type_name = value.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "{argument} must be seconds (int or float) or a timedelta, not {type_name}"
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
        let type_name = value.get_type().name()?;
        return Err(PyTypeError::new_err(format!("{argument} must be str, not {type_name}")));
    };
    let encoded = text.to_cow().map(|text| text.into_owned());
    encoded
        .map_err(|_| PyValueError::new_err(format!("{argument} has surrogates, which UTF-8 cannot encode")))
}

/// A text, or nothing.
pub fn optional_text(argument: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<String>> {
    value.filter(|value| !value.is_none()).map(|value| text(argument, value)).transpose()
}
