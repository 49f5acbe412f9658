//! Prints a plan for people.

use std::fmt;

use super::Plan;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, protocol, bug, named, delay: (least, most), locks, clients, faults, .. } = self;
        write!(f, "seed {seed}: {protocol:?}, messages take {least:?} to {most:?}")?;
        writeln!(
            f,
            "{}{}{}",
            if *named { ", named" } else { "" },
            if self.groups() { ", in groups" } else { "" },
            bug.map_or_else(String::new, |bug| format!(", {bug:?}"))
        )?;
        for lock in locks {
            writeln!(
                f,
                "lock {}: {}",
                lock.name,
                lock.limit.map_or_else(|| "read-write".into(), |limit| format!("{limit} permits"))
            )?;
        }
        for (number, client) in clients.iter().enumerate() {
            if client.tasks.iter().all(Vec::is_empty) {
                continue;
            }
            writeln!(f, "process {} from {:?}, clock {:+} ppm", number + 1, client.starts, client.fast)?;
            for (task, ops) in client.tasks.iter().enumerate() {
                for op in ops {
                    writeln!(f, "  task {task}: {op:?}")?;
                }
            }
        }
        for fault in faults {
            writeln!(f, "{}: {fault:?}", fault.kind())?;
        }
        Ok(())
    }
}
