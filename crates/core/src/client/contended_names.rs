//! The names that other claims wanted when this client last claimed them.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::Name;

/// The most names that are remembered. When a further name is to be remembered, all earlier ones are forgotten. The
/// next claim of a forgotten name costs one more request if another claim still wants the name.
const MAX_NAMES: usize = 4096;

/// Names for which a claim does not expect to be alone.
#[derive(Debug, Default)]
pub struct ContendedNames(Mutex<HashSet<Name>>);

impl ContendedNames {
    /// Whether another claim wanted the name.
    pub fn has(&self, name: &Name) -> bool {
        self.lock().contains(name)
    }

    /// Records that another claim wanted the name.
    pub fn add(&self, name: &Name) {
        let mut names = self.lock();
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(name.clone());
    }

    /// Records whether another claim was ahead of a claim of the name.
    pub fn set(&self, name: &Name, is_contended: bool) {
        if is_contended {
            self.add(name);
        } else {
            self.lock().remove(name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Name>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contended_names_are_remembered_up_to_a_bound() {
        let names = ContendedNames::default();
        let name = |number: usize| Name::new(&number.to_string()).unwrap();
        names.set(&name(0), true);
        assert!(names.has(&name(0)) && !names.has(&name(1)));
        names.set(&name(0), false);
        assert!(!names.has(&name(0)));
        (0..=MAX_NAMES).for_each(|number| names.add(&name(number)));
        assert!(names.has(&name(MAX_NAMES)) && !names.has(&name(0)));
    }
}
