//! Starts the boss or a worker of a scenario.

use std::{env, process::ExitCode};

use crate::{
    Failure, Floor, Scenario,
    arguments::{Arguments, Place},
    server::{Server, open},
};

type Part = fn(&Floor) -> Result<(), Failure>;

/// Runs a scenario: either `boss`, in a new directory that is removed afterwards, or `worker`, in the directory of its
/// boss.
pub fn run(scenario: &Scenario, boss: Part, worker: Part) -> ExitCode {
    let result = match Floor::of_worker() {
        Some(floor) => worker(&floor),
        None => start(scenario, boss),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("failed: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn start(scenario: &Scenario, boss: Part) -> Result<(), Failure> {
    let words: Vec<String> = env::args().skip(1).collect();
    let Arguments { url, data, protection } = scenario.parse(&words)?;
    let held = tempfile::tempdir()?;
    let dir = held.path().to_owned();
    let open = |place: &Place| match place {
        Place::Word(word) => open(word, &dir).map(Some),
        Place::Same => Ok(None),
    };
    let locks: Option<Server> = open(&url)?;
    let stock: Option<Server> = data.as_ref().map_or(Ok(None), open)?;
    let url_of = |server: &Option<Server>| server.as_ref().map(|server| server.url.clone());
    let url = url_of(&locks).or_else(|| url_of(&stock)).ok_or("a place for locks is missing")?;
    let data = data.is_some().then(|| url_of(&stock).unwrap_or_else(|| url.clone()));
    boss(&Floor { dir, worker: None, url, data, protection })
}
