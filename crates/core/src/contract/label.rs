//! The default owner of a claim: the user, host and process that make it. Reads the user file of the system.

/// The default owner of a claim of this process, which `list` and `show` print for a holder: `user@host:pid`, as far as
/// the system knows it.
pub(crate) fn owner_label() -> String {
    owner_label_of(std::process::id())
}

/// The default owner of a claim of this process or of another process of this user and host.
pub(crate) fn owner_label_of(pid: u32) -> String {
    let host = system::host().unwrap_or_else(|| "?".into());
    format!("{}@{host}:{pid}", system::user())
}

/// Unix systems: the numbers and names of the kernel and of the user file.
#[cfg(unix)]
mod system {
    use std::{fs::File, io::Read};

    use nix::unistd::{User, geteuid, gethostname};

    /// The file of the local users of this machine.
    const USER_FILE: &str = "/etc/passwd";
    /// How many bytes of [`USER_FILE`] are read at most: a name that is only displayed does not justify reading more.
    const MAX_USER_FILE_BYTES: u64 = 64 << 10;

    pub(super) fn user() -> String {
        let uid = geteuid();
        local_user(uid.as_raw())
            .or_else(|| Some(User::from_uid(uid).ok().flatten()?.name))
            .unwrap_or_else(|| uid.to_string())
    }

    pub(super) fn host() -> Option<String> {
        gethostname().ok().and_then(|host| host.into_string().ok())
    }

    /// The name of a local user of this machine, read from [`USER_FILE`]. The C library would first load the name
    /// services of the system and ask their daemons, which takes a short-lived command about as long as its lock does.
    fn local_user(uid: u32) -> Option<String> {
        let mut users = Vec::with_capacity(4096);
        File::open(USER_FILE).ok()?.take(MAX_USER_FILE_BYTES).read_to_end(&mut users).ok()?;
        find_user(&users, uid)
    }

    /// The name of the user with this uid in the content of a user file. Lines are `name:password:uid:...`; the first
    /// entry with this uid counts, as in the C library.
    pub(super) fn find_user(users: &[u8], uid: u32) -> Option<String> {
        let users = std::str::from_utf8(users).ok()?;
        users.split_inclusive('\n').filter(|line| line.ends_with('\n')).find_map(|line| {
            let mut fields = line.split(':');
            let (name, uid_text) = (fields.next()?, fields.nth(1)?);
            (uid_text.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
        })
    }
}

/// Windows: the variables that it gives each program.
#[cfg(not(unix))]
mod system {
    use std::env::var;

    pub(super) fn user() -> String {
        var("USERNAME").unwrap_or_else(|_| "?".into())
    }

    pub(super) fn host() -> Option<String> {
        var("COMPUTERNAME").ok()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::{system::find_user, *};

    #[test]
    fn a_user_is_found_in_whole_lines_only() {
        let users =
            b"root:x:0:0:root:/root:/bin/sh\n+::::::\nnonsense\ntoor:x:0:0::/:\nme:x:7:7::/:\nlast:x:8:8";
        let name_of = |uid| find_user(users, uid);
        assert_eq!((name_of(0).as_deref(), name_of(7).as_deref()), (Some("root"), Some("me")));
        assert_eq!((name_of(8), name_of(9)), (None, None));
        assert_eq!(find_user(&[0xff, b'\n'], 0), None);
    }

    #[test]
    fn a_label_has_the_system_name_of_the_user() {
        let uid = nix::unistd::geteuid();
        let user =
            nix::unistd::User::from_uid(uid).unwrap().map_or_else(|| uid.to_string(), |user| user.name);
        assert!(owner_label().starts_with(&format!("{user}@")));
    }
}
