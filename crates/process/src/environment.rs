//! The environment of a started program.
//!
//! ```text
//!     same user               our environment, unchanged
//!     user who called sudo    the environment that sudo passed on, without sudo's own variables
//!     another user (`--user`) what `sudo -u` would pass on: terminal, language and time zone
//!
//! A user's program gets HOME, USER, LOGNAME and SHELL of that user; another user's program also gets the system's PATH for users
//! (`ENV_PATH` of login.defs(5)). Variables of root's session (XDG_RUNTIME_DIR, DBUS_SESSION_BUS_ADDRESS, SSH_AUTH_SOCK) and of the
//! dynamic loader (LD_*) are not passed on to another user. `ahead record --user NAME -- env VAR=VALUE CMD` sets more variables.
//!
//! In some variables systemd names the process that should use them (`LISTEN_PID` of sd_listen_fds(3), `WATCHDOG_PID` of
//! sd_watchdog_enabled(3)). If one names this process, the program should use it: the child writes its own number there.

use ahead_sys::exec::{self, Value};
use ahead_sys::user::User;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

type Variable = (OsString, OsString);

/// The variables that hold the number of the process that should use them.
const NUMBERED: [&str; 2] = ["LISTEN_PID", "WATCHDOG_PID"];

/// The pidfd identity of the process in `LISTEN_PID` (systemd 258). Without it, programs compare the number alone.
const LISTEN_IDENTITY: &str = "LISTEN_PIDFDID";

/// Variables that pass from root to another user: the harmless part of sudo's list (`env_keep` and `env_check` in
/// plugins/sudoers/env.c), and the variables that control colours.
const PASSED: [&str; 8] = ["TERM", "COLORTERM", "NO_COLOR", "LANG", "LANGUAGE", "TZ", "LINES", "COLUMNS"];
const PASSED_PREFIX: &str = "LC_";

/// Prefix of sudo's own variables: the program is started for the user, not by sudo.
const SUDO_PREFIX: &str = "SUDO_";
/// Variables about passed descriptors. Descriptors do not pass from one user to another.
const ACTIVATION: [&str; 4] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"];

/// The environment of a program.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) variables: Vec<exec::Variable>,
    path: OsString,
}

impl Environment {
    /// The environment of a program that runs as this user. `None`: the current user.
    pub(crate) fn of(user: Option<&User>) -> Environment {
        let own: Vec<Variable> = std::env::vars_os().collect();
        let variables = match user {
            None => own,
            Some(user) if is_sudo_caller(user, &own) => from_sudo(user, own),
            Some(user) => from_root(user, own, &login_path(user.uid)),
        };
        Environment::new(variables, std::process::id())
    }

    /// `own`: the number of this process.
    fn new(mut variables: Vec<Variable>, own: u32) -> Environment {
        let own = own.to_string();
        let is_own =
            |(name, value): &Variable| NUMBERED.iter().any(|n| name == n) && value.as_bytes() == own.as_bytes();
        if variables.iter().any(|variable| variable.0 == "LISTEN_PID" && is_own(variable)) {
            variables.retain(|(name, _)| name != LISTEN_IDENTITY);
        }
        let path = value_of(&variables, "PATH").map_or_else(|| DEFAULT_PATH.into(), OsStr::to_owned);
        let variable = |variable: Variable| {
            let is_own = is_own(&variable);
            let (name, text) = variable;
            exec::Variable { name, value: if is_own { Value::OwnPid } else { Value::Text(text) } }
        };
        Environment { variables: variables.into_iter().map(variable).collect(), path }
    }

    /// The paths at which this program is looked up, as by a shell. A name with a slash is a path itself.
    pub(crate) fn candidates(&self, program: &OsString) -> Vec<OsString> {
        if program.as_bytes().contains(&b'/') {
            return vec![program.clone()];
        }
        std::env::split_paths(&self.path).map(|directory| directory.join(program).into_os_string()).collect()
    }
}

/// The default if neither the environment nor login.defs has a PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn value_of<'a>(variables: &'a [Variable], name: &str) -> Option<&'a OsStr> {
    variables.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
}

/// Whether sudo has passed on our environment for this user.
pub(crate) fn came_through_sudo(user: &User) -> bool {
    is_sudo_caller(user, &std::env::vars_os().collect::<Vec<_>>())
}

fn is_sudo_caller(user: &User, own: &[Variable]) -> bool {
    let uid = value_of(own, "SUDO_UID").and_then(OsStr::to_str).and_then(|uid| uid.parse().ok());
    uid == Some(user.uid) || value_of(own, "SUDO_USER") == Some(&user.name)
}

fn from_sudo(user: &User, mut own: Vec<Variable>) -> Vec<Variable> {
    let is_sudos = |name: &OsStr| name.as_bytes().starts_with(SUDO_PREFIX.as_bytes());
    own.retain(|(name, _)| !is_sudos(name) && !ACTIVATION.iter().any(|key| name == key));
    with_identity(user, own)
}

fn from_root(user: &User, mut own: Vec<Variable>, path: &OsStr) -> Vec<Variable> {
    let is_passed =
        |name: &OsStr| PASSED.iter().any(|key| name == *key) || name.as_bytes().starts_with(PASSED_PREFIX.as_bytes());
    own.retain(|(name, _)| is_passed(name));
    own.push(("PATH".into(), path.to_owned()));
    with_identity(user, own)
}

fn with_identity(user: &User, mut variables: Vec<Variable>) -> Vec<Variable> {
    let own = [
        ("HOME", user.home.as_os_str()),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
        ("SHELL", user.shell.as_os_str()),
    ];
    variables.retain(|(name, _)| !own.iter().any(|(key, _)| name == key));
    variables.extend(own.map(|(key, value)| (key.into(), value.to_owned())));
    variables
}

const LOGIN_DEFS: &str = "/etc/login.defs";

/// The PATH that su(1) and login(1) set: `ENV_SUPATH` for root, `ENV_PATH` for other users.
fn login_path(uid: u32) -> OsString {
    let text = std::fs::read_to_string(LOGIN_DEFS).unwrap_or_default();
    path_in(&text, if uid == 0 { "ENV_SUPATH" } else { "ENV_PATH" }).unwrap_or(DEFAULT_PATH).into()
}

/// `ENV_PATH PATH=/usr/local/bin:…`; the word `PATH=` may be missing (login.defs(5)).
fn path_in<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|line| line.trim_start().strip_prefix(key)?.strip_prefix([' ', '\t', '=']))?;
    let value = value.trim().trim_matches('"');
    Some(value.strip_prefix("PATH=").unwrap_or(value)).filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada() -> User {
        User { name: "ada".into(), uid: 7, gid: 7, home: "/home/ada".into(), shell: "/bin/zsh".into() }
    }

    fn variables(pairs: &[(&str, &str)]) -> Vec<Variable> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn names(variables: &[Variable]) -> Vec<&str> {
        let mut names: Vec<&str> = variables.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        names.sort_unstable();
        names
    }

    /// Regression: `record --user` passed on root's PATH, session and secrets.
    #[test]
    fn another_user_gets_only_terminal_and_language_from_root() {
        let root = variables(&[
            ("PATH", "/root/bin:/usr/sbin"),
            ("TERM", "xterm"),
            ("LC_ALL", "C"),
            ("LD_PRELOAD", "/root/x.so"),
            ("XDG_RUNTIME_DIR", "/run/user/0"),
            ("SSH_AUTH_SOCK", "/root/agent"),
            ("SECRET", "x"),
            ("SUDO_USER", "eve"),
            ("LISTEN_FDS", "1"),
            ("SHELL", "/bin/bash"),
        ]);
        assert!(!is_sudo_caller(&ada(), &root));
        let given = from_root(&ada(), root, OsStr::new("/usr/bin"));
        assert_eq!(names(&given), ["HOME", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "USER"]);
        let value = |name| value_of(&given, name).unwrap().to_str().unwrap();
        assert_eq!((value("PATH"), value("SHELL"), value("HOME")), ("/usr/bin", "/bin/zsh", "/home/ada"));
    }

    #[test]
    fn sudo_caller_gets_the_environment_that_sudo_passed_on() {
        let own =
            variables(&[("PATH", "/x"), ("OPTION", "1"), ("SUDO_UID", "7"), ("SUDO_USER", "ada"), ("HOME", "/r")]);
        assert!(is_sudo_caller(&ada(), &own));
        let given = from_sudo(&ada(), own);
        assert_eq!(names(&given), ["HOME", "LOGNAME", "OPTION", "PATH", "SHELL", "USER"]);
        assert_eq!(value_of(&given, "HOME").unwrap(), "/home/ada");
    }

    #[test]
    fn path_of_login_defs_is_read_in_both_spellings() {
        let text = "# ENV_PATH PATH=/no\nENV_SUPATH\tPATH=/sbin\nENV_PATH  PATH=/a:/b\n";
        assert_eq!((path_in(text, "ENV_PATH"), path_in(text, "ENV_SUPATH")), (Some("/a:/b"), Some("/sbin")));
        assert_eq!(path_in("ENV_PATH=\"/a:/b\"\n", "ENV_PATH"), Some("/a:/b"));
        assert_eq!(path_in("ENV_PATHS /a\nENV_PATH\n", "ENV_PATH"), None);
    }

    /// Regression: the program found another process's number, and ignored the sockets from systemd.
    #[test]
    fn own_number_in_a_systemd_variable_becomes_the_programs_number() {
        let given = |own: u32| {
            let given =
                variables(&[("LISTEN_PID", "41"), ("LISTEN_PIDFDID", "9"), ("WATCHDOG_PID", "41"), ("X", "41")]);
            let shown = |variable: exec::Variable| match variable.value {
                Value::OwnPid => format!("{}=(own)", variable.name.display()),
                Value::Text(text) => format!("{}={}", variable.name.display(), text.display()),
            };
            Environment::new(given, own).variables.into_iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(given(41), ["LISTEN_PID=(own)", "WATCHDOG_PID=(own)", "X=41"]);
        assert_eq!(given(42), ["LISTEN_PID=41", "LISTEN_PIDFDID=9", "WATCHDOG_PID=41", "X=41"]);
    }
}
