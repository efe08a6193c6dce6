//! Checked values for udev rules and systemd units.
//!
//! Root reads rules and units, but their values come from outside: a serial number from a device, a label from a disk image.
//! Any user may choose the source, type and mount point of a FUSE mount. A line feed in a value would begin a new line,
//! `ExecStartPre=` for example. Rules and units are therefore composed only of these types. Each type accepts allowed
//! characters, escapes special ones, and refuses all others.

use std::fmt;

/// Longest value: longer than any path, far shorter than a line that udev (16 KiB) or systemd (1 MiB) reads. Unit: bytes.
const LONGEST_BYTES: usize = 4096;

/// An error message: the value, the file, and the reason.
fn refuse(value: &str, place: &str, why: &str) -> String {
    format!("{value:?} cannot be written to {place}: {why}")
}

/// A value between the quotes of a udev rule: a pattern that matches only this value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleValue(String);

impl RuleValue {
    /// Errors: empty, too long, not printable ASCII, or a character that udev cannot escape: `"`, `\`, and `|`, which always
    /// separates patterns.
    pub fn new(value: &str) -> Result<RuleValue, String> {
        let is_allowed = |c: char| (c.is_ascii_graphic() || c == ' ') && !matches!(c, '"' | '\\' | '|');
        match () {
            () if value.is_empty() || value.len() > LONGEST_BYTES => Err(refuse(value, "a rule", "its length")),
            () if !value.chars().all(is_allowed) => {
                Err(refuse(value, "a rule", "only printable ASCII without \", \\ and | is allowed"))
            }
            () => Ok(RuleValue(value.chars().map(of_one).collect())),
        }
    }
}

/// Escapes a character: a pattern set of one character matches that character, also where `$` and `%` are replaced.
fn of_one(c: char) -> String {
    if matches!(c, '*' | '?' | '[' | '$' | '%') { format!("[{c}]") } else { c.to_string() }
}

impl fmt::Display for RuleValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value between double quotes in a unit (systemd.syntax(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnitValue(String);

impl UnitValue {
    /// Accepts printable text.
    ///
    /// Errors: empty, too long, control characters, or invisible characters (directions, joiners, line separators).
    pub fn new(value: &str) -> Result<UnitValue, String> {
        match () {
            () if value.is_empty() || value.len() > LONGEST_BYTES => Err(refuse(value, "a unit", "its length")),
            () if !value.chars().all(is_printable) => {
                Err(refuse(value, "a unit", "it has control or hidden characters"))
            }
            () => Ok(UnitValue(value.chars().map(escaped).collect())),
        }
    }

    /// A file system type for findmnt(8), where a comma separates types, and a prefix `no` means all others.
    ///
    /// Errors: other characters than in names of types.
    pub fn of_type(fs_type: &str) -> Result<UnitValue, String> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
        match fs_type.chars().all(is_allowed) && !fs_type.starts_with("no") {
            true => UnitValue::new(fs_type),
            false => Err(refuse(fs_type, "a unit", "a file system type has only letters, digits and . _ - +")),
        }
    }

    /// A UUID.
    ///
    /// Errors: other characters than in a UUID.
    pub fn of_uuid(uuid: &str) -> Result<UnitValue, String> {
        match uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
            true => UnitValue::new(uuid),
            false => Err(refuse(uuid, "a unit", "it is not a UUID")),
        }
    }
}

/// Letters and digits of all scripts with combining marks, printable ASCII, and the space.
fn is_printable(c: char) -> bool {
    c.is_ascii_graphic() || c == ' ' || (!c.is_ascii() && c.is_alphanumeric()) || ('\u{300}'..='\u{36f}').contains(&c)
}

/// `%` begins a specifier; `$` has no meaning in `Environment=`.
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

/// The name of a mount unit, without characters that are special to systemd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountUnit(String);

/// Longest name of a unit (`UNIT_NAME_MAX` of systemd), bytes. For a longer mount point systemd uses another name.
const LONGEST_NAME: usize = 255;

impl MountUnit {
    /// As printed by `systemd-escape --path --suffix=mount`.
    pub fn of(point: &str) -> MountUnit {
        MountUnit(format!("{}.mount", escape_path(point)))
    }

    /// Errors: the name is too long for systemd.
    pub fn checked(self) -> Result<MountUnit, String> {
        match self.0.len() <= LONGEST_NAME {
            true => Ok(self),
            false => Err(refuse(&self.0, "a unit", "a unit's name has at most 255 bytes")),
        }
    }
}

impl fmt::Display for MountUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a mount unit without its suffix, as printed by `systemd-escape --path`.
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

/// Text for a comment, without line breaks.
pub(crate) fn comment(text: &str) -> String {
    let plain = |c: char| if is_printable(c) && c != '\\' { c } else { '?' };
    text.chars().take(LONGEST_BYTES).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(RuleValue::new("a*b?c[d]$e%f").unwrap().to_string(), "a[*]b[?]c[[]d][$]e[%]f");
        assert_eq!(UnitValue::new("a%b\"c\\d $e é").unwrap().to_string(), "a%%b\\\"c\\\\d $e é");
        assert_eq!(comment("a\nb\\"), "a?b?");
    }

    #[test]
    fn characters_that_could_end_a_value_are_refused() {
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
    fn paths_are_escaped_as_by_systemd() {
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
        /// An accepted value stays on its line and within its quotes.
        #[test]
        fn value_stays_within_its_quotes(text in any::<String>()) {
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
