//! `leasehold break`: ends a hold on purpose.

use leasehold::{Broken, Locks, Name};
use leasehold_ops::end_hold;

use super::{break_record::Recorder, connect, print};
use crate::{
    after_break::AfterBreak,
    args,
    exit::{self, Failure},
    source::Given,
    text::{escaped, owner_only, shell_word},
};

/// Breaks the hold that has this token. With an audit file, records it before and after.
pub(crate) fn break_(args: &args::Break, given: &Given) -> Result<u8, Failure> {
    let name = Name::new(&args.name)?;
    let recorder = Recorder::new(args)?;
    let locks = connect(&given.url)?;
    match recorder {
        None => end(args, &name, &locks, given),
        Some(recorder) => recorder.recorded(args, &name, &locks, || end(args, &name, &locks, given)),
    }
}

/// Ends the hold, and waits for a holder that the engine has to ask.
fn end(args: &args::Break, name: &Name, locks: &Locks, given: &Given) -> Result<u8, Failure> {
    match end_hold(locks, name.as_str(), args.token, args.force)? {
        Broken::Done => {
            let (engine, look) = (locks.profile().engine, locks.show_blocking(name.as_str()));
            let after = AfterBreak { engine, name, token: args.token, look };
            print(&if args.json { after.json() } else { after.text() })
        }
        Broken::NotHeld => {
            let (engine, token) = (locks.profile().engine, args.token);
            if let Some(foreign) = held_by_another_program(locks, name) {
                let message = format!("{engine} lock {:?}: {foreign}", name.as_str());
                return Err(Failure::new(exit::NOT_HELD, message));
            }
            let show = given.reached(engine).quoted_command(&format!("show {}", shell_word(name.as_str())));
            let message = format!(
                "{engine} lock {:?}: nothing is held under token {token}: {show} shows the holder",
                name.as_str()
            );
            Err(Failure::new(exit::NOT_HELD, message))
        }
        // A result that this command does not know is no success.
        other => {
            let engine = locks.profile().engine;
            let message = format!("{engine} lock {:?}: unexpected result {other:?}", name.as_str());
            Err(Failure::new(exit::BUG, message))
        }
    }
}

/// Why no token breaks the hold of this name, and what to do: another program holds it. `None`: no other program does,
/// or it is not known.
fn held_by_another_program(locks: &Locks, name: &Name) -> Option<String> {
    let view = locks.show_blocking(name.as_str()).ok()?;
    let holder = view.holders.iter().find(|holder| holder.foreign && holder.token.is_none())?;
    let owner = owner_only(holder);
    let what_to_do = match locks.profile().engine {
        "file" => "end that process".to_owned(),
        _ => format!("release it with that program, or, if it is dead, delete {}", escaped(&view.key)),
    };
    Some(format!("it is held by {owner}, not by leasehold, and so it has no token: {what_to_do}"))
}
