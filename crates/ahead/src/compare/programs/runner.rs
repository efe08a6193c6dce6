//! One comparison of program runs: evict, check, run, count.

use super::ProgramComparison;
use crate::compare::scratch::Scratch;
use crate::compare::timed::Timed;
use crate::compare::{Runner, Sample};
use crate::error::IoContext;
use crate::machine::wait_for_machine_as_root;
use crate::notify::Notify;
use crate::until::Finished;
use crate::{Account, Error, Result};
use ahead_process::{Command, Signals};
use std::ffi::OsString;
use std::io;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    Cold,
    Ahead,
    Warm,
    /// Index into [`ProgramComparison::rivals`].
    Rival(usize),
}

impl Variant {
    /// For the name of a file.
    fn word(self) -> String {
        match self {
            Variant::Rival(index) => format!("rival{index}"),
            own => format!("{own:?}").to_lowercase(),
        }
    }
}

/// Runs the program, and keeps what the report says about all runs.
pub struct ProgramRunner<'a> {
    pub(super) setup: &'a ProgramComparison,
    pub(super) timed: Timed<'a>,
    pub(super) scratch: Scratch,
    accounts: Vec<Account>,
    accounts_bytes: u64,
    /// The first status of the program that was not 0, in runs without a rival; 0: none.
    program_status: i32,
    /// The end that was asked for came in every run without a rival.
    always_ready: bool,
    /// The same for each rival's own status.
    rival_statuses: Vec<i32>,
    runs: u32,
}

/// The most bytes of an account: a million ranges at some 60 bytes each.
const MAX_ACCOUNT_BYTES: u64 = 64 << 20;
/// The most bytes of the accounts of all runs together: they are kept to the end, and there may be a thousand runs. The account of a profile
/// of 10,000 files takes half a megabyte.
const MAX_ACCOUNTS_BYTES: u64 = 1 << 30;

impl<'a> ProgramRunner<'a> {
    /// Waits for the machine's lock, as root.
    pub fn new(setup: &'a ProgramComparison, signals: &'a Signals, notify: Notify<'a>) -> Result<ProgramRunner<'a>> {
        let lock = wait_for_machine_as_root(signals, notify)?;
        Ok(ProgramRunner {
            timed: Timed::new(&setup.profile, lock, signals, notify)?,
            scratch: Scratch::new(setup.user.as_ref())?,
            accounts: Vec::new(),
            accounts_bytes: 0,
            program_status: 0,
            always_ready: true,
            rival_statuses: vec![0; setup.rivals.len()],
            runs: 0,
            setup,
        })
    }

    /// Gives away the accounts of the runs with the profile: they are too long to copy.
    pub fn take_accounts(&mut self) -> Vec<Account> {
        std::mem::take(&mut self.accounts)
    }

    /// The first status of the program that was not 0; 0: none.
    pub fn program_status(&self) -> i32 {
        self.program_status
    }

    /// Whether the end that was asked for came in every run.
    pub fn was_always_ready(&self) -> bool {
        self.always_ready
    }

    /// The first status of this rival that was not 0; 0: none.
    pub fn rival_status(&self, index: usize) -> i32 {
        self.rival_statuses[index]
    }

    /// The command of a run. `name`: of the files that it leaves.
    pub(super) fn command(&self, variant: Variant, name: &str) -> Result<Command> {
        self.run_of(self.argv(variant, name))
    }

    /// A command as the user, with the input of each run.
    pub(super) fn run_of(&self, argv: Vec<OsString>) -> Result<Command> {
        let input = Some(self.setup.input.open()?);
        Ok(Command::new(argv).user(self.setup.user.clone()).discard_output(true).input(input))
    }

    /// `name`: of the file for an account or a rival's status.
    fn argv(&self, variant: Variant, name: &str) -> Vec<OsString> {
        let (setup, file) = (self.setup, self.scratch.file(name));
        let command = setup.command.iter().cloned();
        match variant {
            Variant::Cold | Variant::Warm => command.collect(),
            Variant::Ahead => {
                // The output that is waited for is the program's, not ours.
                let messages = self.scratch.file(&messages_of(name));
                let files = [("--profile", setup.profile_path.clone()), ("--account", file), ("--messages", messages)];
                let device = setup.device.clone().map(|device| ("--device", device));
                let flags =
                    files.into_iter().chain(device).flat_map(|(flag, file)| [OsString::from(flag), file.into()]);
                let head = [setup.ahead_program.clone().into(), "run".into(), "--account-ranges".into()];
                let head = head.into_iter().chain(flags);
                head.chain(["--".into()]).chain(command).collect()
            }
            Variant::Rival(index) => {
                // The shell runs the rival to its end, then becomes the program, whose input the rival must not read.
                let shell = &setup.rivals[index].shell;
                let script = format!("{{ {shell}\n}} </dev/null\necho $? >\"$0\"\nexec \"$@\"");
                let head: [OsString; 4] = ["sh".into(), "-c".into(), script.into(), file.into()];
                head.into_iter().chain(command).collect()
            }
        }
    }

    /// Reads what `ahead run` wrote, and its length.
    pub(super) fn read_account(&self, name: &str, status: i32) -> Result<(Account, u64)> {
        let text = self.scratch.read(name, MAX_ACCOUNT_BYTES);
        let text = text.what(&format!("ahead run left no account: it failed or was killed (status {status})"))?;
        let account = serde_json::from_slice(&text).map_err(io::Error::other);
        Ok((account.what("understand the account of ahead run")?, text.len() as u64))
    }

    /// Keeps what the report says about a run beside its sample.
    fn keep(&mut self, variant: Variant, name: &str, finished: Finished) -> Result<()> {
        let Finished { status, ready, .. } = finished;
        let mut failed_rival = None;
        match variant {
            Variant::Ahead => {
                let (account, length_bytes) = self.read_account(name, status)?;
                self.accounts_bytes += length_bytes;
                if self.accounts_bytes > MAX_ACCOUNTS_BYTES {
                    let limit = MAX_ACCOUNTS_BYTES >> 20;
                    let why = format!("the accounts of the runs are longer than {limit} MiB: measure fewer runs");
                    return Err(Error::Failed(why));
                }
                self.accounts.push(account);
            }
            Variant::Rival(index) => {
                let own = self.read_status(name).unwrap_or(status.max(1));
                failed_rival = Some(own).filter(|own| *own != 0);
                set_if_zero(&mut self.rival_statuses[index], own);
            }
            Variant::Cold | Variant::Warm => {}
        }
        if !matches!(variant, Variant::Rival(_)) {
            set_if_zero(&mut self.program_status, status);
            self.always_ready &= ready;
        }
        if let Some(own) = failed_rival {
            let name = self.setup.name_of(variant);
            self.timed.notify_once(format!("{name} failed with exit status {own}: excluded from the results"));
        } else if status != 0 && variant == Variant::Cold && self.runs == 1 && !self.setup.even_if_failed {
            return Err(Error::CommandFailed(status));
        } else if status != 0 {
            self.timed.notify_once(format!("the command's exit status was {status}: is that what should be measured?"));
        }
        if self.setup.until.is_set() && !ready {
            self.timed.notify_once("the command ended without being ready: its time is that to its end".into());
        }
        Ok(())
    }

    /// The status of a rival; `None`: the shell did not reach its end.
    fn read_status(&self, name: &str) -> Option<i32> {
        String::from_utf8(self.scratch.read(name, 16).ok()?).ok()?.trim().parse().ok()
    }
}

impl Runner for ProgramRunner<'_> {
    type Variant = Variant;

    fn run(&mut self, variant: &Variant) -> Result<Sample> {
        let variant = *variant;
        self.timed.prepare(self.setup.prepare.as_deref())?;
        if variant != Variant::Warm {
            self.timed.make_cold_for_a_run()?;
        }
        let name = format!("{}-{}", variant.word(), self.runs);
        self.runs += 1;
        let command = self.command(variant, &name)?;
        let (sample, finished) = self.timed.time(&command, &self.setup.until)?;
        for line in self.scratch.lines(&messages_of(&name)) {
            self.timed.notify_once(line.trim_start_matches("ahead: ").to_owned());
        }
        self.keep(variant, &name, finished)?;
        Ok(sample)
    }
}

/// The name of the file for the messages of an `ahead run`.
pub(super) fn messages_of(name: &str) -> String {
    format!("{name}.messages")
}

fn set_if_zero(first: &mut i32, status: i32) {
    if *first == 0 {
        *first = status;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_failure_counts() {
        let first_of = |statuses: [i32; 4]| {
            let mut first = 0;
            statuses.into_iter().for_each(|status| set_if_zero(&mut first, status));
            first
        };
        assert_eq!((first_of([0, 3, 0, 4]), first_of([0; 4])), (3, 0));
    }
}
