//! The texts of the cards.

/// The card of the keys.
pub(super) const HELP: [&str; 14] = [
    "arrows, j k g G   select a hold; the selection stays with the hold",
    "PgUp, PgDn        a page up, a page down",
    "Enter             details of the name: all holders, all waiters",
    "s                 order by the next column, which is marked by *",
    "r                 the reverse order",
    "/                 show only names and holders that contain a text",
    "Esc               back; all rows",
    "f                 freeze the picture; again: the newest data",
    "^D                break the selected hold, after a question",
    "^L                paint the screen anew",
    "^Z                back to the shell for a while",
    "q, ^C             quit",
    "",
    "LEFT: until the lease ends unless it is renewed. WAIT: how many wait.",
];

/// What follows when a hold is broken.
pub(super) const CONSEQUENCES: &str = "The holder loses the lock. The next request is granted when the holder has \
     stopped, or when its lease has ended.";

/// What to do to break it.
pub(super) const CONFIRM: &str = "Type the name to confirm:";

/// The hold is not there any more.
pub(super) const HAS_ENDED: &str = "This hold has ended: nothing is left to break.";
