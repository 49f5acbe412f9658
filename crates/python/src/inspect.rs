//! What operators ask: who holds and waits, what the engine promises, and the end of a hold.

use std::time::Duration;

use leasehold::{Broken, HolderView, Mode, View};
use pyo3::{exceptions::PyTypeError, prelude::*, sync::PyOnceLock};

use crate::{
    arguments::{count, text},
    locks::{Locks, fallible},
    operation::Operation,
};

/// The holders and the waiters of `name`.
#[pyfunction]
pub fn show(locks: &Bound<'_, Locks>, name: &Bound<'_, PyAny>) -> PyResult<Operation> {
    let (native, name) = (locks.get().native(locks.py())?, text("name", name)?);
    Ok(fallible(locks.as_unbound(), async move { native.show(&name).await }, |py, view| view_of(py, &view)))
}

/// The names that begin with `prefix` and have a holder or a waiter.
#[pyfunction]
pub fn list(locks: &Bound<'_, Locks>, prefix: &Bound<'_, PyAny>) -> PyResult<Operation> {
    let (native, prefix) = (locks.get().native(locks.py())?, text("prefix", prefix)?);
    Ok(fallible(locks.as_unbound(), async move { native.list(&prefix).await }, |py, views| {
        let views = views.iter().map(|view| view_of(py, view)).collect::<PyResult<Vec<_>>>()?;
        Ok(views.into_pyobject(py)?.into_any().unbind())
    }))
}

/// The owner text of the first holder of `name`, and the seconds for which it has held the name; `None` for a free one.
#[pyfunction]
pub fn holder(locks: &Bound<'_, Locks>, name: &Bound<'_, PyAny>) -> PyResult<Operation> {
    let (native, name) = (locks.get().native(locks.py())?, text("name", name)?);
    Ok(fallible(locks.as_unbound(), async move { native.show(&name).await }, |py, view| {
        let first = view.holders.first().map(|holder| (holder.owner.clone(), seconds(holder.held)));
        Ok(first.into_pyobject(py)?.into_any().unbind())
    }))
}

/// Ends a hold. Results in whether it was held under `token`.
#[pyfunction]
pub fn break_hold(
    locks: &Bound<'_, Locks>,
    name: &Bound<'_, PyAny>,
    token: &Bound<'_, PyAny>,
    force: bool,
) -> PyResult<Operation> {
    let none = || PyTypeError::new_err("token must be int, not None");
    let token = count("token", Some(token))?.ok_or_else(none)?;
    let (native, name) = (locks.get().native(locks.py())?, text("name", name)?);
    let work = async move { native.break_hold(&name, token, force).await };
    Ok(fallible(locks.as_unbound(), work, |py, broken| {
        let is_done = broken == Broken::Done;
        Ok(is_done.into_pyobject(py)?.to_owned().into_any().unbind())
    }))
}

/// What the engine promises as it is configured now.
#[pyfunction]
pub fn guarantee(locks: &Bound<'_, Locks>) -> PyResult<Operation> {
    let native = locks.get().native(locks.py())?;
    Ok(fallible(locks.as_unbound(), async move { native.guarantee().await }, |py, guarantee| {
        static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let findings: Vec<_> = guarantee
            .findings
            .into_iter()
            .map(|finding| (finding.what, finding.found, finding.wanted, finding.risk))
            .collect();
        let build = BUILD.import(py, "leasehold._view", "guarantee_of")?;
        Ok(build.call1((guarantee.level.to_string(), findings, guarantee.notes))?.unbind())
    }))
}

/// What an operator should know about the servers.
#[pyfunction]
pub fn diagnose(locks: &Bound<'_, Locks>) -> PyResult<Operation> {
    let native = locks.get().native(locks.py())?;
    Ok(fallible(locks.as_unbound(), async move { native.diagnose().await }, |py, diagnostics| {
        static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let rows: Vec<_> = diagnostics
            .into_iter()
            .map(|one| (one.id, one.severity.as_str(), one.server, one.found, one.advice))
            .collect();
        Ok(BUILD.import(py, "leasehold._view", "diagnostics_of")?.call1((rows,))?.unbind())
    }))
}

fn view_of(py: Python<'_>, view: &View) -> PyResult<Py<PyAny>> {
    static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let holders: Vec<_> = view.holders.iter().map(parts_of_holder).collect();
    let waiters: Vec<_> = view
        .waiters
        .iter()
        .map(|waiter| (&waiter.id, &waiter.owner, seconds(waiter.waiting), waiter.mode.map(Mode::word)))
        .collect();
    let lineage = view.lineage.as_ref().map(ToString::to_string);
    let build = BUILD.import(py, "leasehold._view", "view_of")?;
    let (name, mode) = (view.name.as_str(), view.mode.map(Mode::word));
    Ok(build.call1((name, &view.key, mode, holders, waiters, lineage, &view.problem, &view.note))?.unbind())
}

/// The holder: what each engine tells, and what is known of its lease and its process.
type Parts<'a> = (Told<'a>, Lease);
type Told<'a> = (&'a str, &'a str, Option<u64>, Option<f64>, Option<f64>, bool, bool, Option<&'static str>);
type Lease = (bool, Option<f64>, Option<f64>, Option<f64>, Option<(u32, Option<char>)>);

/// The fields of `leasehold.Holder`, in their order. Python takes at most 12 values in a tuple from Rust.
fn parts_of_holder(holder: &HolderView) -> Parts<'_> {
    let told = (
        holder.id.as_str(),
        holder.owner.as_str(),
        holder.token,
        seconds(holder.held),
        seconds(holder.remaining),
        holder.of_session,
        holder.foreign,
        holder.mode.map(Mode::word),
    );
    let process = holder.process.map(|process| (process.pid, process.state));
    let overdue = seconds(holder.overdue());
    (told, (holder.broken, seconds(holder.ttl), seconds(holder.since_renewal), overdue, process))
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}
