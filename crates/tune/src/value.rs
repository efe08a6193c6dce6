//! Values that go into a udev rule or a systemd unit.
//!
//! A rule and a unit are read by root, and what stands in them comes from outside: a serial number from a device, a label from a disk
//! image, the source, type and place of a FUSE mount from whichever user mounted it. A line feed in one of them would begin a line
//! of its own, `ExecStartPre=` for instance. So rules and units are put together from these types alone, each of which takes what is
//! allowed, escapes what has a meaning there, and refuses everything else.

use std::fmt;

/// Longest value: longer than any path, far shorter than a line that udev (16 KiB) or systemd (1 MiB) reads. Unit: bytes.
const LONGEST_BYTES: usize = 4096;

/// Why something cannot be written down: what it is, with its value, and what is wrong with it.
fn refuse(value: &str, place: &str, why: &str) -> String {
    format!("{value:?} cannot be written into {place}: {why}")
}

/// What udev compares with, between the quotes of a rule: a pattern that matches this value alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleValue(String);

impl RuleValue {
    /// Errors: it is empty or too long, or has other letters than those of printable ASCII, or one of those that udev has no way to
    /// write: `"`, `\`, and `|`, which separates patterns whatever stands before it.
    pub fn new(value: &str) -> Result<RuleValue, String> {
        let is_allowed = |c: char| (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '\\' | '|');
        match () {
            () if value.is_empty() || value.len() > LONGEST_BYTES => Err(refuse(value, "a rule", "its length")),
            () if !value.chars().all(is_allowed) => {
                Err(refuse(value, "a rule", "only printable ASCII without \", \\ and | can"))
            }
            () => Ok(RuleValue(value.chars().map(of_one).collect())),
        }
    }
}

/// In a pattern a set of one letter is that letter, also where `$` and `%` are replaced.
fn of_one(c: char) -> String {
    if matches!(c, '*' | '?' | '[' | '$' | '%') { format!("[{c}]") } else { c.to_string() }
}

impl fmt::Display for RuleValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What stands between double quotes in a unit (systemd.syntax(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitValue(String);

impl UnitValue {
    /// Any text of printable letters.
    ///
    /// Errors: it is empty or too long, or has control characters or others without a shape (directions, joiners, separators of lines).
    pub fn new(value: &str) -> Result<UnitValue, String> {
        match () {
            () if value.is_empty() || value.len() > LONGEST_BYTES => Err(refuse(value, "a unit", "its length")),
            () if !value.chars().all(is_printable) => {
                Err(refuse(value, "a unit", "it has control or hidden characters"))
            }
            () => Ok(UnitValue(value.chars().map(escaped).collect())),
        }
    }

    /// The type of a file system, as findmnt(8) takes it: there a comma separates types, and `no` before one means all others.
    ///
    /// Errors: it is another word than types of file systems are.
    pub fn of_type(fs_type: &str) -> Result<UnitValue, String> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
        match fs_type.chars().all(is_allowed) && !fs_type.starts_with("no") {
            true => UnitValue::new(fs_type),
            false => Err(refuse(fs_type, "a unit", "types of file systems have letters, digits and . _ - + alone")),
        }
    }

    /// A UUID.
    ///
    /// Errors: it has other letters than a UUID has.
    pub fn of_uuid(uuid: &str) -> Result<UnitValue, String> {
        match uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
            true => UnitValue::new(uuid),
            false => Err(refuse(uuid, "a unit", "it is no UUID")),
        }
    }
}

/// Letters and digits of all scripts, with the marks above them, what ASCII prints, and the blank.
fn is_printable(c: char) -> bool {
    c.is_ascii_graphic() || c == ' ' || (!c.is_ascii() && c.is_alphanumeric()) || ('\u{300}'..='\u{36f}').contains(&c)
}

/// `%` begins a specifier; `$` means nothing in an environment.
fn escaped(c: char) -> String {
    match c {
        '"' | '\\' => format!("\\{c}"),
        '%' => "%%".into(),
        c => c.to_string(),
    }
}

impl fmt::Display for UnitValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a mount's unit: letters that mean nothing to systemd, whatever the place is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountUnit(String);

/// Longest name of a unit (`UNIT_NAME_MAX` of systemd), bytes. A longer place has a unit of another name.
const LONGEST_NAME: usize = 255;

impl MountUnit {
    /// As `systemd-escape --path --suffix=mount` has it.
    pub fn of(point: &str) -> MountUnit {
        MountUnit(format!("{}.mount", escape_path(point)))
    }

    /// Errors: systemd has no unit of this name.
    pub fn checked(self) -> Result<MountUnit, String> {
        match self.0.len() <= LONGEST_NAME {
            true => Ok(self),
            false => Err(refuse(&self.0, "a unit", "a name of a unit has 255 bytes at most")),
        }
    }
}

impl fmt::Display for MountUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a mount's unit without its ending, as `systemd-escape --path` has it.
fn escape_path(path: &str) -> String {
    let trimmed = path.trim_matches('/');
    if trimmed.is_empty() {
        return "-".into();
    }
    let escape = |(index, byte): (usize, u8)| match byte {
        b'/' => "-".to_owned(),
        b'.' if index == 0 => "\\x2e".into(),
        byte if byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'.') => char::from(byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    };
    trimmed.bytes().enumerate().map(escape).collect()
}

/// Text for a comment: a line that ends where we end it.
pub(crate) fn comment(text: &str) -> String {
    let plain = |c: char| if is_printable(c) && c != '\\' { c } else { '?' };
    text.chars().take(LONGEST_BYTES).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn letters_that_mean_something_mean_themselves() {
        assert_eq!(RuleValue::new("a*b?c[d]$e%f").unwrap().to_string(), "a[*]b[?]c[[]d][$]e[%]f");
        assert_eq!(UnitValue::new("a%b\"c\\d $e é").unwrap().to_string(), "a%%b\\\"c\\\\d $e é");
        assert_eq!(comment("a\nb\\"), "a?b?");
    }

    #[test]
    fn what_could_end_a_value_is_refused() {
        for bad in ["", "a\nb", "a\rb", "a\0b", "a\u{85}b", "a\u{2028}b", "\u{202e}x", "a\tb", "\u{1b}[2J"] {
            assert!(UnitValue::new(bad).is_err() && RuleValue::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["a\"b", "a|b", "a\\b", "é"] {
            assert!(RuleValue::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["fuse.x\nExecStartPre=/bin/id", "a,b", "noext4", "fuse.a b", ""] {
            assert!(UnitValue::of_type(bad).is_err(), "{bad:?}");
        }
        assert!(UnitValue::of_type("fuse.s3fs-x").is_ok() && UnitValue::of_uuid("../../x").is_err());
        assert!(MountUnit::of(&"/x".repeat(200)).checked().is_err());
    }

    #[test]
    fn paths_are_escaped_as_systemd_does() {
        let known = [("/", "-"), ("/mnt/x/", "mnt-x"), ("/.a/b-c", "\\x2ea-b\\x2dc"), ("/é_1:2", "\\xc3\\xa9_1:2")];
        for (path, escaped) in known {
            assert_eq!(escape_path(path), escaped);
            let theirs = std::process::Command::new("systemd-escape").args(["--path", path]).output();
            if let Ok(theirs) = theirs.map(|output| String::from_utf8(output.stdout).unwrap()) {
                assert_eq!(theirs.trim(), escaped);
            }
        }
    }

    proptest! {
        /// Whatever is taken stays on its line and within its quotes.
        #[test]
        fn a_value_ends_where_its_quotes_do(text in any::<String>()) {
            if let Ok(value) = UnitValue::new(&text) {
                let value = value.to_string();
                prop_assert!(!value.chars().any(char::is_control));
                prop_assert!(!value.replace("\\\\", "").replace("\\\"", "").contains(['"', '\\']));
                prop_assert!(!value.replace("%%", "").contains('%'));
            }
            if let Ok(value) = RuleValue::new(&text) {
                prop_assert!(!value.to_string().contains(['"', '\\', '|', '\n']));
            }
            prop_assert!(!comment(&text).contains(['\n', '\r', '\0', '\\']));
            prop_assert!(MountUnit::of(&text).to_string().bytes().all(|b| b.is_ascii_alphanumeric() || b":_.-\\".contains(&b)));
        }
    }
}
