//! A handle: the data of a hold that another process needs to take the hold up, as one word of text.

use std::{fmt, fmt::Write, str::FromStr, time::Duration};

use crate::{ClaimId, Error, Lineage, Mode, Name, Token};

/// The beginning of every handle, with the version of its format.
const START: &str = "lh1";
/// How many fields follow the check sum. The name is the last of them, because it may contain the separator.
const FIELDS: usize = 8;
/// The separator of the fields.
const SEPARATOR: char = '.';
/// The longest text that is read as a handle: each byte of the longest name as three characters, and all other fields.
const MAX_HANDLE_BYTES: usize = 3 * crate::MAX_NAME_BYTES + 512;
/// The text of a mode of exclusive or shared holds.
const EXCLUSIVE: &str = "x";
const SHARED: &str = "s";
/// The text of permits: `p2-8` is two of eight.
const PERMITS: char = 'p';
/// The text for a site that is not known.
const NO_SITE: &str = "-";

/// A hold that outlasts its [`Guard`](crate::Guard): what another process needs to take the hold up. A handle is made
/// by [`Guard::into_handle`](crate::Guard::into_handle), and used by `Locks::resume`.
///
/// Its text is one word of letters, digits and `._/%-`, so a shell need not quote it. It contains the name, the mode,
/// the id of the claim, the token and the name of the engine, and neither the URL nor a password. A user with the
/// handle and a login of the engine can release the hold. A text that was cut or changed is refused.
///
/// ```
/// # let locks = leasehold::Locks::connect("memory:")?;
/// let handle = locks.mutex("deploy").blocking().acquire()?.into_handle()?;
/// let text = handle.to_string();
/// let read: leasehold::Handle = text.parse()?;
/// assert_eq!((read.name().as_str(), read.token()), ("deploy", handle.token()));
/// assert!(text[..text.len() - 1].parse::<leasehold::Handle>().unwrap_err().is_invalid());
/// # locks.resume_blocking(&handle)?.release_blocking()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    engine: String,
    name: Name,
    mode: Mode,
    id: ClaimId,
    token: Token,
    /// The number of the first token of the grant, by which the engine recognises the hold.
    first_token: u64,
    ttl: Duration,
    site: Option<u32>,
}

impl Handle {
    pub(crate) fn new(
        engine: &str,
        name: &Name,
        (id, mode): (ClaimId, Mode),
        (token, first_token): (Token, u64),
        ttl: Duration,
    ) -> Self {
        let (engine, name) = (engine.to_owned(), name.clone());
        Self { engine, name, mode, id, token, first_token, ttl, site: None }
    }

    /// The name of the engine: `redis`.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// The name held.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// The mode in which it is held.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The id of the claim on the engine, as `show` reports it.
    #[must_use]
    pub const fn id(&self) -> ClaimId {
        self.id
    }

    /// The fencing token of the hold.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// The lease time to which a resumed hold is extended, in whole milliseconds.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The same handle, with another lease time.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// A number for the servers on which the hold is, if the maker of the handle has set one: see
    /// [`with_site`](Self::with_site).
    #[doc(hidden)]
    #[must_use]
    pub const fn site(&self) -> Option<u32> {
        self.site
    }

    /// The same handle, with a number by which a user of the handle can recognise that it has another URL.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_site(mut self, site: u32) -> Self {
        self.site = Some(site);
        self
    }

    /// The first token of the grant, by which the engine recognises the hold.
    pub(crate) const fn grant_token(&self) -> Token {
        Token { lineage: self.token.lineage, number: self.first_token }
    }

    /// All fields but the check sum, as text: the name is last.
    fn fields(&self) -> [String; FIELDS] {
        let behind = self.token.number.saturating_sub(self.first_token);
        [
            self.engine.clone(),
            match self.mode {
                Mode::Exclusive => EXCLUSIVE.to_owned(),
                Mode::Shared => SHARED.to_owned(),
                Mode::Permits { count, limit } => format!("{PERMITS}{count}-{limit}"),
            },
            self.ttl.as_millis().to_string(),
            if behind == 0 { self.token.to_string() } else { format!("{}-{behind}", self.token) },
            self.token.lineage.to_string(),
            self.id.to_string(),
            self.site.map_or_else(|| NO_SITE.to_owned(), |site| format!("{site:08x}")),
            encoded(self.name.as_str()),
        ]
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields();
        write!(f, "{START}{SEPARATOR}{:08x}", check_sum(&fields))?;
        fields.iter().try_for_each(|field| write!(f, "{SEPARATOR}{field}"))
    }
}

impl FromStr for Handle {
    type Err = Error;

    /// Reads the text of a handle.
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) for a text that is no handle, or was cut or changed.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mangled =
            || Error::invalid("this is no handle of leasehold, or a part of one: pass the whole word");
        let rest = text.strip_prefix(START).and_then(|rest| rest.strip_prefix(SEPARATOR));
        let rest = rest.filter(|_| text.len() <= MAX_HANDLE_BYTES).ok_or_else(mangled)?;
        let (_, rest) = rest.split_once(SEPARATOR).ok_or_else(mangled)?;
        let fields: Vec<&str> = rest.splitn(FIELDS, SEPARATOR).collect();
        let &[engine, mode, ttl, token, lineage, id, site, name] = fields.as_slice() else {
            return Err(mangled());
        };
        let handle = (|| {
            let (number, behind) = token.split_once('-').unwrap_or((token, "0"));
            let (number, behind): (u64, u64) = (number.parse().ok()?, behind.parse().ok()?);
            let lineage = u128::from_str_radix(lineage, 16).ok()?;
            Some(Self {
                engine: engine.to_owned(),
                name: Name::new(&decoded(name)?).ok()?,
                mode: mode_of(mode)?,
                id: ClaimId::read(id)?,
                token: Token { lineage: Lineage::new(lineage), number },
                first_token: number.checked_sub(behind)?,
                ttl: Duration::from_millis(ttl.parse().ok()?),
                site: if site == NO_SITE { None } else { Some(u32::from_str_radix(site, 16).ok()?) },
            })
        })();
        // The text of the same fields is the same, so a second spelling of a handle is no handle.
        handle.filter(|handle| handle.to_string() == text).ok_or_else(mangled)
    }
}

/// The mode that a field of a handle says.
fn mode_of(text: &str) -> Option<Mode> {
    match text {
        EXCLUSIVE => Some(Mode::Exclusive),
        SHARED => Some(Mode::Shared),
        permits => {
            let (count, limit) = permits.strip_prefix(PERMITS)?.split_once('-')?;
            let (count, limit): (u32, u32) = (count.parse().ok()?, limit.parse().ok()?);
            (1..=limit).contains(&count).then_some(Mode::Permits { count, limit })
        }
    }
}

/// The name, with `%` and two hexadecimal digits for each byte that a shell or another program may interpret.
fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'/' | b'-' => text.push(byte.into()),
            other => write!(text, "%{other:02x}").expect("a string accepts all text"),
        }
    }
    text
}

/// The name that was [`encoded`]; `None` if a `%` has no two digits after it, or the bytes are no text.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// A sum over the fields, which shows that a text was cut or changed by accident (FNV-1a). It protects from no
/// attacker: who can use a handle can also make one.
fn check_sum(fields: &[String]) -> u32 {
    let bytes = fields.iter().flat_map(|field| field.bytes().chain([b'\n']));
    bytes.fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(name: &str, mode: Mode, number: u64, first_token: u64) -> Handle {
        let token = Token { lineage: Lineage::new(1 << 100), number };
        let (name, claim) = (Name::new(name).unwrap(), (ClaimId([0xab; 16]), mode));
        Handle::new("redis", &name, claim, (token, first_token), Duration::from_secs(600))
    }

    #[test]
    fn a_handle_is_read_from_its_own_text() {
        let permits = Mode::Permits { count: 2, limit: 8 };
        for (name, mode, token, first) in [
            ("deploy", Mode::Exclusive, 7, 7),
            ("a.b/c d%41'\"$(x)\u{202e}ä", Mode::Shared, u64::MAX, 1),
            (&"ä".repeat(256), permits, 9, 3),
        ] {
            for handle in [handle(name, mode, token, first), handle(name, mode, token, first).with_site(0xff)]
            {
                let text = handle.to_string();
                assert_eq!(text.parse::<Handle>().unwrap(), handle, "{text}");
                let is_word = |c: char| c.is_ascii_alphanumeric() || "._/%-".contains(c);
                assert!(text.chars().all(is_word) && text.len() <= MAX_HANDLE_BYTES, "{text}");
            }
        }
    }

    #[test]
    fn a_text_that_was_cut_or_changed_is_refused() {
        let text = handle("a%b", Mode::Exclusive, 17, 17).with_site(5).to_string();
        for end in 0..text.len() {
            assert!(text[..end].parse::<Handle>().unwrap_err().is_invalid(), "{}", &text[..end]);
        }
        for position in 0..text.len() {
            for replacement in ["0", "x", ".", "%", "é"] {
                let mut changed = text.clone();
                changed.replace_range(position..=position, replacement);
                let other = changed.parse::<Handle>();
                assert!(changed == text || other.unwrap_err().is_invalid(), "{changed}");
            }
        }
        for wrong in
            [format!("{text} "), format!(" {text}"), text.to_uppercase(), "lh1.".repeat(9), "x".repeat(9999)]
        {
            assert!(wrong.parse::<Handle>().unwrap_err().is_invalid(), "{wrong}");
        }
    }

    #[test]
    fn a_handle_of_impossible_permits_is_refused() {
        for mode in ["p0-3", "p4-3", "p1", "p", "p1-2-3", "X", ""] {
            assert_eq!(mode_of(mode), None, "{mode}");
        }
    }
}
