//! Which starts are starts of the same program: the path of the program, the script or module that an interpreter runs, and the first plain
//! word after it, the variant.
//!
//! ```text
//!     /usr/bin/git -C /src status          git, variant status
//!     python3 -u tool.py check             python3, script /cwd/tool.py, variant check
//!     python3 -m http.server 8000          python3, module http.server
//!     sh -c 'make all'                     sh: code on the command line has no name
//!     busybox ls -l                        busybox, module ls
//! ```
//!
//! Arguments are a program's own text: a wrong guess costs a start without its profile, or one with the profile of another variant, never more.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest path or word in a key, bytes: `PATH_MAX`. Longer ones have no key.
const MAX_WORD_BYTES: usize = 4096;
/// Longest variant, bytes. Subcommands are short; what is longer is a pattern or a message.
const MAX_VARIANT_BYTES: usize = 24;
/// Words of a command line that are looked at. A script comes after few options.
const MAX_WORDS: usize = 64;

/// What the starts of a program have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AppKey {
    /// The file that was executed, an absolute path.
    #[serde(with = "text")]
    pub program: Vec<u8>,
    /// The script or module of an interpreter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
    /// The first plain word, where starts with it were found to read other pages. `None`: all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// What an interpreter runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Script {
    /// A file, an absolute path.
    File(#[serde(with = "text")] Vec<u8>),
    /// A module (`python -m`), a class (`java`) or an applet (`busybox`).
    Module(#[serde(with = "text")] Vec<u8>),
}

/// A key, and the variant that a start belongs to if arguments matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartKey {
    /// Without a variant.
    pub app: AppKey,
    /// The first plain word.
    pub variant: Option<String>,
}

/// Which version of a program's file was executed. Without the device: its number may change with each boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppVersion {
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// How an interpreter's options are read. Letters are those of options with one dash.
struct Interpreter {
    names: &'static [&'static str],
    /// After these no word names a script: code follows, or is read from standard input.
    code: &'static str,
    long_code: &'static [&'static str],
    /// These take a value: the rest of the word, or the next one.
    value: &'static str,
    /// These take the rest of the word, if there is any.
    attached: &'static str,
    long_value: &'static [&'static str],
    /// These are followed by a module.
    module: &'static str,
    /// Without an option the first word is a module, not a file.
    runs_modules: bool,
}

const NONE: Interpreter = Interpreter {
    names: &[],
    code: "",
    long_code: &[],
    value: "",
    attached: "",
    long_value: &[],
    module: "",
    runs_modules: false,
};

/// From the manual pages python3(1), perlrun(1), ruby(1), node(1), php(1), lua(1), bash(1), dash(1), java(1).
const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: &["python", "pypy"],
        code: "c",
        value: "WX",
        long_value: &["--check-hash-based-pycs"],
        module: "m",
        ..NONE
    },
    Interpreter { names: &["perl"], code: "eE", value: "I", attached: "CDFMimx", ..NONE },
    Interpreter { names: &["ruby", "jruby"], code: "e", value: "IrCE", attached: "FKWix", ..NONE },
    Interpreter {
        names: &["node", "nodejs"],
        code: "ep",
        long_code: &["--eval", "--print"],
        value: "rC",
        long_value: &["--require", "--import", "--loader", "--conditions", "--env-file"],
        ..NONE
    },
    Interpreter { names: &["php"], code: "rBRE", value: "cdz", ..NONE },
    Interpreter { names: &["lua", "luajit"], code: "e", value: "l", ..NONE },
    Interpreter {
        names: &["bash", "sh", "dash", "zsh", "ksh", "ash"],
        code: "cs",
        value: "oO",
        long_value: &["--rcfile", "--init-file"],
        ..NONE
    },
    // Its options are long, with one dash.
    Interpreter {
        names: &["java"],
        long_value: &["-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules", "-m", "--module"],
        runs_modules: true,
        ..NONE
    },
];

/// One file with many programs, which go by the name that they are called by.
const MULTI_CALL: [&str; 3] = ["busybox", "toybox", "coreutils"];

impl StartKey {
    /// The key of a start. `program`: the path of the executed file; `arguments`: with the program's name; `directory`: the working directory.
    /// `None`: the path is not absolute, or too long.
    pub fn of(program: &[u8], arguments: &[Vec<u8>], directory: &[u8]) -> Option<StartKey> {
        if program.first() != Some(&b'/') || program.len() > MAX_WORD_BYTES {
            return None;
        }
        let words: Vec<&[u8]> = arguments.iter().take(MAX_WORDS).map(Vec::as_slice).collect();
        let (called, rest) = words.split_first().map_or((program, &[][..]), |(called, rest)| (*called, rest));
        let (script, rest) = script_of(file_name(program), called, rest);
        let script = match script {
            Some(ScriptWord::Module(name)) => Some(Script::Module(name.to_vec())),
            Some(ScriptWord::File(path)) => Some(Script::File(absolute(path, directory)?)),
            Some(ScriptWord::Code) => {
                let app = AppKey { program: program.to_vec(), script: None, variant: None };
                return Some(StartKey { app, variant: None });
            }
            None => None,
        };
        let app = AppKey { program: program.to_vec(), script, variant: None };
        Some(StartKey { app, variant: variant_of(rest) })
    }

    /// The key with its variant.
    pub fn split(&self) -> AppKey {
        AppKey { variant: self.variant.clone(), ..self.app.clone() }
    }
}

impl AppKey {
    /// Its name for people: of the script or module, or else of the program, and the variant.
    pub fn name(&self) -> String {
        let own = match &self.script {
            Some(Script::File(path)) => file_name(path),
            Some(Script::Module(name)) => name,
            None => file_name(&self.program),
        };
        let own = String::from_utf8_lossy(own);
        self.variant.as_ref().map_or(own.to_string(), |variant| format!("{own} {variant}"))
    }

    /// The name of its directory: letters of its name, and a hash of everything. Two keys with one hash differ in the state in it.
    pub fn directory_name(&self) -> String {
        let mut hash = crc32fast::Hasher::new();
        hash.update(&self.program);
        // No part contains NUL, so parts cannot run together.
        let parts = match &self.script {
            None => [&b"\0"[..], b""],
            Some(Script::File(path)) => [&b"\0f"[..], path],
            Some(Script::Module(name)) => [&b"\0m"[..], name],
        };
        parts.into_iter().for_each(|part| hash.update(part));
        hash.update(b"\0");
        hash.update(self.variant.as_deref().unwrap_or("").as_bytes());
        let plain = |at: char| if at.is_ascii_alphanumeric() || "._+-".contains(at) { at } else { '_' };
        let name: String = self.name().chars().map(plain).take(MAX_NAME).collect();
        format!("{name}-{:08x}", hash.finalize())
    }
}

/// Bytes as text where they are UTF-8, or else as numbers.
mod text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Text {
        Utf8(String),
        Bytes(Vec<u8>),
    }

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => text.serialize(to),
            Err(_) => bytes.serialize(to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Ok(match Text::deserialize(from)? {
            Text::Utf8(text) => text.into_bytes(),
            Text::Bytes(bytes) => bytes,
        })
    }
}

/// Letters of a name in that of a directory.
const MAX_NAME: usize = 40;

impl fmt::Display for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.program))?;
        match &self.script {
            Some(Script::File(path)) => write!(f, " {}", String::from_utf8_lossy(path))?,
            Some(Script::Module(name)) => write!(f, " -m {}", String::from_utf8_lossy(name))?,
            None => {}
        }
        self.variant.as_ref().map_or(Ok(()), |variant| write!(f, " {variant}"))
    }
}

enum ScriptWord<'a> {
    File(&'a [u8]),
    Module(&'a [u8]),
    Code,
}

/// What an interpreter runs, and the words after it. `None`: the program is none.
fn script_of<'a, 'w>(name: &[u8], called: &'a [u8], words: &'w [&'a [u8]]) -> (Option<ScriptWord<'a>>, &'w [&'a [u8]]) {
    if MULTI_CALL.iter().any(|multi| multi.as_bytes() == name) {
        let called = file_name(called);
        return match words.split_first() {
            Some((applet, rest)) if called == name => (Some(ScriptWord::Module(applet)), rest),
            None if called == name => (None, words),
            _ => (Some(ScriptWord::Module(called)), words),
        };
    }
    let stem = name.iter().rposition(|at| !at.is_ascii_digit() && *at != b'.').map_or(name, |last| &name[..=last]);
    match INTERPRETERS.iter().find(|known| known.names.iter().any(|known| known.as_bytes() == stem)) {
        Some(interpreter) => interpreter.script(words),
        None => (None, words),
    }
}

impl Interpreter {
    fn script<'a, 'w>(&self, words: &'w [&'a [u8]]) -> (Option<ScriptWord<'a>>, &'w [&'a [u8]]) {
        let mut at = 0;
        while let Some(word) = words.get(at).copied() {
            at += 1;
            let named =
                |word: &'a [u8]| if self.runs_modules { ScriptWord::Module(word) } else { ScriptWord::File(word) };
            match word {
                b"" | b"-" => return (Some(ScriptWord::Code), &[]),
                b"--" => {
                    return (Some(words.get(at).map_or(ScriptWord::Code, |word| named(word))), after(words, at + 1));
                }
                b"-jar" if self.runs_modules => {
                    return (
                        Some(words.get(at).map_or(ScriptWord::Code, |word| ScriptWord::File(word))),
                        after(words, at + 1),
                    );
                }
                [b'-', ..] if self.runs_modules || word.starts_with(b"--") => {
                    let is = |names: &[&str]| names.iter().any(|name| name.as_bytes() == word);
                    let is_code = self.long_code.iter().any(|name| word.starts_with(name.as_bytes()));
                    if is_code {
                        return (Some(ScriptWord::Code), &[]);
                    }
                    let is_module = self.runs_modules && matches!(word, b"-m" | b"--module");
                    if is_module {
                        return (
                            Some(words.get(at).map_or(ScriptWord::Code, |it| ScriptWord::Module(it))),
                            after(words, at + 1),
                        );
                    }
                    at += usize::from(is(self.long_value));
                }
                [b'-' | b'+', letters @ ..] => match self.letters(letters) {
                    Letters::Code => return (Some(ScriptWord::Code), &[]),
                    Letters::Module([]) => {
                        return (
                            Some(words.get(at).map_or(ScriptWord::Code, |it| ScriptWord::Module(it))),
                            after(words, at + 1),
                        );
                    }
                    Letters::Module(name) => return (Some(ScriptWord::Module(name)), after(words, at)),
                    Letters::ValueFollows => at += 1,
                    Letters::Flags => {}
                },
                word => return (Some(named(word)), after(words, at)),
            }
        }
        (Some(ScriptWord::Code), &[])
    }

    fn letters<'a>(&self, letters: &'a [u8]) -> Letters<'a> {
        let has = |set: &str, letter: u8| set.as_bytes().contains(&letter);
        for (index, letter) in letters.iter().copied().enumerate() {
            let rest = &letters[index + 1..];
            match letter {
                _ if has(self.code, letter) => return Letters::Code,
                _ if has(self.module, letter) => return Letters::Module(rest),
                _ if has(self.attached, letter) => return Letters::Flags,
                _ if has(self.value, letter) => {
                    return if rest.is_empty() { Letters::ValueFollows } else { Letters::Flags };
                }
                _ => {}
            }
        }
        Letters::Flags
    }
}

enum Letters<'a> {
    Flags,
    Code,
    ValueFollows,
    Module(&'a [u8]),
}

fn after<'a, 'w>(words: &'w [&'a [u8]], at: usize) -> &'w [&'a [u8]] {
    words.get(at..).unwrap_or_default()
}

/// The first word that is no option and looks like a subcommand: small letters, digits and dashes. The word after `--` is an operand.
fn variant_of(words: &[&[u8]]) -> Option<String> {
    let word = words.iter().take_while(|word| **word != b"--").find(|word| !word.starts_with(b"-"))?;
    let is_plain = |at: &u8| at.is_ascii_lowercase() || at.is_ascii_digit() || b"_-".contains(at);
    let plain = word.len() <= MAX_VARIANT_BYTES && word.first()?.is_ascii_lowercase() && word.iter().all(is_plain);
    plain.then(|| String::from_utf8_lossy(word).into_owned())
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|at| *at == b'/').next().unwrap_or(path)
}

/// Joined by text: the file system is not asked. `None`: too long, or there is no directory.
fn absolute(path: &[u8], directory: &[u8]) -> Option<Vec<u8>> {
    let whole = match path {
        [b'/', ..] => path.to_vec(),
        _ if directory.first() != Some(&b'/') => return None,
        _ => [directory, path].join(&b'/'),
    };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in whole.split(|at| *at == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    (whole.len() <= MAX_WORD_BYTES).then(|| [b"/".to_vec(), parts.join(&b'/')].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(line: &str) -> String {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.replace('~', " ").into_bytes()).collect();
        let key = StartKey::of(&words[0], &words, b"/home/eva").unwrap();
        let variant = key.variant.as_ref().map_or(String::new(), |variant| format!(" [{variant}]"));
        format!("{}{variant}", key.app)
    }

    #[test]
    fn interpreters_go_by_their_script_or_module() {
        for (line, expected) in [
            ("/usr/bin/python3.11 -u -W ignore tool.py check x", "/usr/bin/python3.11 /home/eva/tool.py [check]"),
            ("/usr/bin/python3 -Wignore ../b/./t.py --x", "/usr/bin/python3 /home/b/t.py"),
            ("/usr/bin/python3 -um http.server 8000", "/usr/bin/python3 -m http.server"),
            ("/usr/bin/python3 -mjson.tool f", "/usr/bin/python3 -m json.tool [f]"),
            ("/usr/bin/python3 -uc print(1) build", "/usr/bin/python3"),
            ("/usr/bin/python3 - build", "/usr/bin/python3"),
            ("/usr/bin/python3", "/usr/bin/python3"),
            ("/usr/bin/perl -I lib -w /usr/bin/ack foo", "/usr/bin/perl /usr/bin/ack [foo]"),
            ("/usr/bin/perl -lane print x", "/usr/bin/perl"),
            ("/usr/bin/perl -i.bak -pe s/a/b/ x", "/usr/bin/perl"),
            ("/usr/bin/ruby -rjson a.rb", "/usr/bin/ruby /home/eva/a.rb"),
            ("/usr/bin/node --require x --inspect /srv/app.js serve", "/usr/bin/node /srv/app.js [serve]"),
            ("/usr/bin/node --eval=1 x", "/usr/bin/node"),
            ("/bin/bash -eu -o pipefail ./build.sh all", "/bin/bash /home/eva/build.sh [all]"),
            ("/bin/sh -ec make all", "/bin/sh"),
            ("/bin/sh -- -x", "/bin/sh /home/eva/-x"),
            ("/usr/bin/php8.2 -d a=b index.php", "/usr/bin/php8.2 /home/eva/index.php"),
            ("/usr/bin/lua5.4 -l m x.lua", "/usr/bin/lua5.4 /home/eva/x.lua"),
            ("/usr/bin/java -Xmx1g -cp a.jar:b com.x.Main run", "/usr/bin/java -m com.x.Main [run]"),
            ("/usr/bin/java -Xmx1g -jar /srv/a.jar run", "/usr/bin/java /srv/a.jar [run]"),
            ("/usr/bin/busybox ls -l", "/usr/bin/busybox -m ls"),
        ] {
            assert_eq!(key(line), expected, "{line}");
        }
        let applet = StartKey::of(b"/bin/busybox", &[b"/bin/ls".to_vec(), b"x".to_vec()], b"/").unwrap();
        assert_eq!(applet.app.script, Some(Script::Module(b"ls".to_vec())));
    }

    #[test]
    fn other_programs_have_no_arguments_but_a_variant() {
        for (line, expected) in [
            ("/usr/bin/git -c a=b status -s", "/usr/bin/git"),
            ("/usr/bin/git status -s", "/usr/bin/git [status]"),
            ("/usr/bin/vim README.md", "/usr/bin/vim"),
            ("/usr/bin/grep -- status", "/usr/bin/grep"),
            ("/usr/bin/echo a-very-long-word-that-is-no-subcommand", "/usr/bin/echo"),
            ("/usr/bin/pythonista a.py", "/usr/bin/pythonista"),
        ] {
            assert_eq!(key(line), expected, "{line}");
        }
        assert_eq!(StartKey::of(b"git", &[], b"/"), None);
        assert_eq!(StartKey::of(b"/usr/bin/python3", &[b"python3".to_vec(), b"a.py".to_vec()], b""), None);
    }

    #[test]
    fn directory_names_are_plain_and_differ() {
        let app = |program: &str, script, variant: Option<&str>| AppKey {
            program: program.as_bytes().to_vec(),
            script,
            variant: variant.map(str::to_owned),
        };
        let all = [
            app("/usr/bin/git", None, None),
            app("/usr/bin/git", None, Some("status")),
            app("/usr/local/bin/git", None, None),
            app("/bin/sh", Some(Script::File(b"/x/../.. y\n".to_vec())), None),
            app("/bin/sh", Some(Script::Module(b"/x/../.. y\n".to_vec())), None),
        ];
        let names: std::collections::BTreeSet<String> = all.iter().map(AppKey::directory_name).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.iter().all(|name| !name.contains(['/', ' ', '\n']) && name.len() < 64), "{names:?}");
    }

    proptest! {
        #[test]
        fn any_command_line_has_a_key_within_bounds(words in prop::collection::vec(prop::collection::vec(1u8..=255, 0..8), 0..8), name in 0usize..9) {
            let program = ["python3", "perl", "node", "sh", "java", "busybox", "git", "php", "ruby"][name];
            let key = StartKey::of(format!("/bin/{program}").as_bytes(), &words, b"/d").unwrap();
            prop_assert!(key.variant.is_none_or(|variant| variant.len() <= MAX_VARIANT_BYTES));
            if let Some(Script::File(path)) = key.app.script {
                prop_assert!(path.starts_with(b"/") && !path.windows(3).any(|at| at == b"/./"));
            }
        }
    }
}
