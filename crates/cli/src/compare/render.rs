//! The report of a comparison, for people and programs.

use ahead::Account;
use ahead::compare::{BoundBy, ColdState, Measured, ProgramComparison, Report, Spread};
use ahead_report::html::Page;
use ahead_report::json;
use ahead_report::number::{self, count, grouped, size};
use ahead_report::svg::{self, Bar, Tone};
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::{command_line, printable};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;

/// A report and what it is of.
pub struct Rendered<'a> {
    setup: &'a ProgramComparison,
    words: Vec<Vec<u8>>,
    report: Report,
    /// The command line that makes the profile.
    recording: String,
}

/// The result of `ahead compare --json`; documented in docs/reference/json.md.
#[derive(Serialize)]
pub struct Json<'a> {
    command: Vec<String>,
    /// The same, exactly, where not all of it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    command_percent: Option<Vec<String>>,
    #[serde(flatten)]
    report: &'a Report,
}

/// The characters of a command line that are shown to people: two lines of a terminal.
const COMMAND_SHOWN: usize = 160;

impl<'a> Rendered<'a> {
    /// The report of this comparison.
    pub fn new(setup: &'a ProgramComparison, report: Report, recording: String) -> Rendered<'a> {
        let words = setup.command.iter().map(|word| word.as_bytes().to_vec()).collect();
        Rendered { setup, words, report, recording }
    }

    /// For programs.
    pub fn json(&self) -> Json<'_> {
        Json {
            command: json::lossy(&self.words),
            command_percent: json::percent_where_needed(&self.words),
            report: &self.report,
        }
    }

    /// For people, on a terminal.
    pub fn text(&self, screen: Screen) -> String {
        let lines: String = self.remarks().into_iter().map(|remark| remark + "\n").collect();
        let (heading, table) = (screen.heading(&self.short_command()), self.table().render(screen));
        format!("{heading}\n{}\n\n{table}\n{lines}{}\n", self.conditions(), screen.heading(&self.report.verdict))
    }

    /// As a page with a picture.
    pub fn page(&self) -> String {
        let bars: Vec<Bar> = self
            .rows()
            .into_iter()
            .filter_map(|(name, measured)| Some((name, measured?.spread)))
            .map(|(name, spread)| Bar {
                label: name.to_owned(),
                tone: match name {
                    "cold" => Tone::Cold,
                    "ahead" => Tone::Ahead,
                    "warm" => Tone::Warm,
                    _ => Tone::Other,
                },
                median: spread.median,
                min: spread.min,
                max: spread.max,
            })
            .collect();
        let marker = self.report.bound_s.map(|bound| (bound, "lower bound"));
        let mut page = Page::new("Cold, with ahead, warm");
        page.code(&command_line(&self.words)).text(&self.conditions());
        let profile = printable(self.setup.profile_path.as_os_str().as_bytes());
        page.text(&format!("Measured {}. Profile: {profile}", number::date(self.report.measured_unix_s)));
        page.section(&self.report.verdict);
        page.picture(&svg::bars(&bars, "s", marker), &self.legend());
        page.table(&self.table());
        for remark in self.remarks() {
            page.text(&remark);
        }
        page.render()
    }

    /// What the bars, whiskers and the line of the picture mean.
    fn legend(&self) -> String {
        let mut legend = "Bar: median. Whisker: from the fastest to the slowest run. cold: nothing cached, without a profile; ahead: nothing \
                          cached, with the profile; warm: everything cached."
            .to_owned();
        if self.report.bound_s.is_some() {
            legend.push_str(" Line: lower bound, for every order of reads.");
        }
        legend
    }

    /// Name and runs of each variant; `None`: it failed.
    fn rows(&self) -> Vec<(&str, Option<&Measured>)> {
        let report = &self.report;
        let own = [("cold", Some(&report.cold)), ("ahead", Some(&report.ahead)), ("warm", Some(&report.warm))];
        let rivals =
            report.against.iter().map(|rival| (rival.name.as_str(), (rival.status == 0).then_some(&rival.measured)));
        own.into_iter().chain(rivals).collect()
    }

    fn table(&self) -> Table {
        let number = Kind::Number;
        let mut table = Table::new([
            ("", Kind::Text),
            ("median", number),
            ("min", number),
            ("max", number),
            ("requests", number),
            ("device reads", number),
        ]);
        for (name, measured) in self.rows() {
            let Some(measured) = measured else {
                table.row([name, "failed"]);
                continue;
            };
            let Spread { median, min, max } = measured.spread;
            let times = [median, min, max].map(|seconds| format!("{seconds:.3} s"));
            let reads = [grouped(measured.device.requests), size(measured.device.bytes)];
            table.row([name.to_owned()].into_iter().chain(times).chain(reads));
        }
        table
    }

    /// The lines below the table.
    fn remarks(&self) -> Vec<String> {
        let report = &self.report;
        let mut remarks = Vec::new();
        remarks.extend(self.bound());
        if let Some(share) = report.recovered_share {
            remarks.push(recovered(share));
        }
        let account = &report.account;
        let known = |bytes: Option<u64>| bytes.map_or("not observed".into(), size);
        let lost = account.lost_events.filter(|events| *events > 0);
        remarks.push(format!(
            "prefetched {}: used {}, bridged {}, wasted {}; late {}{}, stale {}; according to {}",
            size(account.issued_bytes),
            known(account.used_bytes),
            size(account.bridged_bytes),
            known(account.wasted_bytes),
            known(account.late_bytes),
            lost.map_or(String::new(), |events| format!(" ({} lost)", count(events, "event", "events"))),
            size(account.stale_bytes),
            report.used_according_to,
        ));
        remarks.extend(waste(account).map(|what| format!("{what}; record again: {}", self.recording)));
        remarks.extend(self.failures());
        remarks.extend(self.disturbances());
        remarks.extend(coldness(&report.cold_state, report.model.is_some()));
        remarks
    }

    /// The lower bound and what sets it.
    fn bound(&self) -> Option<String> {
        let bound = self.report.bound_s?;
        Some(match self.report.bound_by {
            Some(BoundBy::Disk) => {
                format!("bound {bound:.3} s: the disk needs this time for the used data, in any order")
            }
            _ => format!("bound {bound:.3} s: the program itself needs this time (its fastest warm run)"),
        })
    }

    fn failures(&self) -> Vec<String> {
        let report = &self.report;
        let mut remarks = Vec::new();
        if report.program_status != 0 {
            remarks.push(format!("the program failed: exit status {}", report.program_status));
        }
        if report.ready == Some(false) {
            remarks.push("the program ended without being ready: that time is not its readiness".into());
        }
        for rival in report.against.iter().filter(|rival| rival.status != 0) {
            remarks.push(format!("{} failed: exit status {}; excluded from the results", rival.name, rival.status));
        }
        remarks
    }

    /// What other processes, or the kernel, did to the measurement.
    fn disturbances(&self) -> Vec<String> {
        let report = &self.report;
        let mut remarks = Vec::new();
        if report.read_ahead_kb_seen.len() > 1 {
            let seen: Vec<_> = report.read_ahead_kb_seen.iter().map(|kb| format!("{kb} KiB")).collect();
            let seen = seen.join(", ");
            remarks.push(format!("another process changed the read-ahead window meanwhile ({seen}): measure again"));
        }
        if report.recorded_meanwhile {
            let what = "another process recorded meanwhile, so that each fault mapped one page only: measure again";
            remarks.push(what.into());
        }
        let measured = || self.rows().into_iter().filter_map(|(_, measured)| measured);
        let (repeated, evicted) = (
            measured().map(|one| one.repeated.len()).sum::<usize>(),
            measured().filter_map(|one| one.evicted_bytes).max().unwrap_or(0),
        );
        if repeated > 0 {
            let runs = count(repeated as u64, "run", "runs");
            remarks.push(format!("{runs} measured again, because the kernel evicted pages meanwhile"));
        }
        if evicted > 0 {
            let evicted = size(evicted);
            remarks.push(format!(
                "disturbed: the kernel evicted up to {evicted} of these file systems during a run; such runs read it again"
            ));
        }
        if report.beyond_rig {
            remarks.push("the disk's model is faster than this machine can emulate: times are too long".into());
        }
        remarks
    }

    /// A command line can be a whole script.
    fn short_command(&self) -> String {
        let whole = command_line(&self.words);
        match whole.char_indices().nth(COMMAND_SHOWN) {
            Some((at, _)) => format!("{}…", &whole[..at]),
            None => whole,
        }
    }

    fn conditions(&self) -> String {
        let report = &self.report;
        let disk = |model: &str| format!(", emulated disk: {}", printable(model.as_bytes()));
        let disk = report.model.as_deref().map_or(String::new(), disk);
        let window = report.read_ahead_kb.map_or("unknown".into(), |kb| format!("{kb} KiB"));
        let (kernel, machine, runs) = (&report.kernel, &report.machine, report.runs);
        format!("Linux {kernel}, {machine}; read-ahead {window}{disk}; {runs} rounds, interleaved")
    }
}

/// What was not evicted before cold runs. `is_emulated`: the files are on an emulated disk.
pub fn coldness(state: &ColdState, is_emulated: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    if state.evicted == "data" {
        remarks.push("cold: data (only pages of files that you may read were evicted; root evicts everything)".into());
    }
    if state.evicted == "data" && is_emulated {
        remarks.push("not cold: only root can empty the emulated drive's own buffer".into());
    }
    if state.kept_bytes > 0 {
        let kept = size(state.kept_bytes);
        remarks.push(format!("not cold: up to {kept} were kept in memory by other processes"));
    }
    if state.unknown_bytes > 0 {
        let unknown = size(state.unknown_bytes);
        remarks.push(format!("perhaps not cold: the kernel does not report whether {unknown} were in memory"));
    }
    remarks
}

/// The recovered share in words: less than nothing is a loss.
fn recovered(share: f64) -> String {
    match share {
        _ if share < 0.0 => format!("slower by {:.0} % of what can be gained", -share * 100.0),
        _ => format!("recovered {:.0} % of what can be gained", share * 100.0),
    }
}

/// What it means if the program did not use most of what was prefetched.
fn waste(account: &Account) -> Option<&'static str> {
    let is_most = account.wasted_bytes? > account.issued_bytes / 2;
    is_most.then_some("most of what was prefetched was not used: the profile is of another start")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_share_is_a_loss() {
        assert_eq!(recovered(0.93), "recovered 93 % of what can be gained");
        assert_eq!(recovered(-1.18), "slower by 118 % of what can be gained");
    }

    #[test]
    fn waste_of_most_is_a_reason_to_record_again() {
        let account = |wasted_bytes| {
            let mut account = Account::default();
            (account.issued_bytes, account.wasted_bytes) = (100, wasted_bytes);
            account
        };
        assert!(waste(&account(Some(99))).is_some());
        assert!(waste(&account(Some(50))).is_none() && waste(&account(None)).is_none());
    }
}
