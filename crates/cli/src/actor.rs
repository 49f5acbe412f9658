//! The task of a run, by which tools for operators see who waits for whom.

use leasehold::Actor;

/// The variable that tells CMD, and the runs inside of it, the task of the run around them. The outermost run makes the
/// first one.
pub(crate) const VARIABLE: &str = "LEASEHOLD_ACTOR";

/// The actor of a run that begins now. A run inside of another one keeps the outer one waiting; any other text in the
/// variable, also an empty one, makes this run one that nobody waits for.
pub(crate) fn of_new_run() -> Actor {
    of_run_inside(&std::env::var(VARIABLE).unwrap_or_default())
}

fn of_run_inside(outer: &str) -> Actor {
    outer.parse().map_or_else(|_| Actor::random(), Actor::child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_inside_names_the_run_around_it_and_no_other() {
        let outermost = of_run_inside("");
        assert_eq!(outermost.parent(), None);
        let inner = of_run_inside(&outermost.to_string());
        assert_eq!(inner.parent(), Some(outermost.id()));
        assert_ne!(inner.id(), of_run_inside(&outermost.to_string()).id(), "two inner runs are two tasks");
        assert_eq!(of_run_inside(&inner.to_string()).parent(), Some(inner.id()));
        assert_eq!(of_run_inside("me").parent(), None);
    }
}
