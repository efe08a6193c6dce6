//! What a comparison found, as people and programs read it.

use super::stats::Spread;
use ahead_report::html::Page;
use ahead_report::number::{grouped, size};
use ahead_report::svg::{self, Bar, Tone};
use ahead_report::table::{Kind, Screen, Table};
use ahead_report::text::printable;
use serde::Serialize;

/// The result of `ahead compare --json`; documented in docs/reference/json.md.
#[derive(Debug, Serialize)]
pub struct Comparison {
    pub command: Vec<String>,
    /// The same, exactly, where not all of it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_percent: Option<Vec<String>>,
    /// The same for people.
    #[serde(skip)]
    pub command_line: String,
    pub kernel: String,
    pub machine: String,
    pub read_ahead_kb: Option<u64>,
    /// All windows that were seen before and after the runs: more than one if somebody has changed it meanwhile.
    pub read_ahead_kb_seen: Vec<u64>,
    /// A recording beside it had switched fault-around off, on the whole machine.
    pub recorded_meanwhile: bool,
    pub runs: u32,
    /// The first exit status of the program that was not 0, or 0.
    pub program_status: i32,
    /// Whether the end that `--until-…` names was reached in every run; `null`: none was named.
    pub ready: Option<bool>,
    /// The emulated disk's model, where the files lie on one.
    pub model: Option<String>,
    /// The emulated disk is slower to emulate than its model: times are upper bounds.
    pub beyond_rig: bool,
    pub cold: Measured,
    pub ahead: Measured,
    pub warm: Measured,
    /// How the page cache was emptied, and what stayed all the same.
    pub cold_state: ColdState,
    /// cold / ahead, of the medians.
    pub speedup: f64,
    /// The larger of the warm time and the device model's time for the used extents in ascending order; `null` where the
    /// disk is not an emulated one. On btrfs an estimate.
    pub bound_s: Option<f64>,
    /// (cold − ahead) / (cold − bound), of the medians; with the warm time for a bound where there is none.
    pub recovered_share: Option<f64>,
    pub prefetched_bytes: u64,
    pub used_bytes: u64,
    pub bridged_bytes: u64,
    pub wasted_bytes: u64,
    /// Fetched, but asked for before it had arrived; `null`: could not be observed here.
    pub late_bytes: Option<u64>,
    pub stale_bytes: u64,
    /// What told which bytes were used: `recorded run` or `profile`.
    pub used_according_to: &'static str,
    /// Device reads of the median `ahead` run.
    pub device: DeviceReads,
    pub against: Vec<RivalResult>,
    /// One sentence: what came out.
    pub verdict: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    #[serde(flatten)]
    pub spread: Spread,
    pub device: DeviceReads,
    /// The most that the page cache lost of these file systems' pages during any of the runs, though their files still had
    /// them: reclaim, or somebody who drops caches. `null`: could not be observed.
    pub evicted_bytes: Option<u64>,
    /// Each run, in order.
    pub samples: Vec<Sample>,
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Its time, seconds.
    pub s: f64,
    /// Device reads.
    pub requests: u64,
    /// Device reads, bytes.
    pub bytes: u64,
    /// As in [`Measured`], of this run.
    pub evicted_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DeviceReads {
    pub requests: u64,
    pub bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct ColdState {
    /// `everything` (caches dropped), or `data` (only the pages of files that the caller may evict).
    pub evicted: &'static str,
    /// The most bytes of the profile's files that stayed cached when they were evicted before a run.
    pub kept_bytes: u64,
    /// The most bytes of the profile of which the kernel did not tell whether they were cached (files of others).
    pub unknown_bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct RivalResult {
    pub name: String,
    /// The first exit status of the rival, not of the program, that was not 0, or 0.
    pub status: i32,
    #[serde(flatten)]
    pub measured: Measured,
    pub recovered_share: Option<f64>,
}

/// Of the command line that many characters are shown to people: two lines of a terminal.
const COMMAND_SHOWN: usize = 160;

/// The share of what can be gained that was gained; `None` where the runs differ as much by chance (`noise_s`).
pub fn recovered_share(cold_s: f64, fetched_s: f64, bound_s: f64, noise_s: f64) -> Option<f64> {
    let gain_possible = cold_s - bound_s;
    // Below a millisecond the quotient says nothing.
    (gain_possible > noise_s.max(1e-3)).then(|| (cold_s - fetched_s) / gain_possible)
}

/// What came out, plainly. A difference within the spread of the runs is no difference.
/// `runs`: how many there were of each.
pub fn verdict(cold: &Spread, ahead: &Spread, runs: u32) -> String {
    let scope = if runs == 1 { "in the one run of each" } else { "in every run" };
    if ahead.max_s < cold.min_s {
        format!("{:.1} times faster with ahead, {scope}", cold.median_s / ahead.median_s)
    } else if ahead.min_s > cold.max_s {
        format!("SLOWER with ahead: {:.2} times the cold time, {scope}", ahead.median_s / cold.median_s)
    } else {
        "no gain here: the runs with ahead and without overlap".into()
    }
}

impl Comparison {
    /// `None`: it failed.
    fn rows(&self) -> Vec<(&str, Option<&Measured>)> {
        let own = [("cold", Some(&self.cold)), ("ahead", Some(&self.ahead)), ("warm", Some(&self.warm))];
        let rivals =
            self.against.iter().map(|rival| (rival.name.as_str(), (rival.status == 0).then_some(&rival.measured)));
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
            let Spread { median_s, min_s, max_s } = measured.spread;
            let times = [median_s, min_s, max_s].map(|seconds| format!("{seconds:.3} s"));
            let reads = [grouped(measured.device.requests), size(measured.device.bytes)];
            table.row([name.to_owned()].into_iter().chain(times).chain(reads));
        }
        table
    }

    /// What there is to say beside the table, a sentence each.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(bound) = self.bound_s {
            remarks.push(format!(
                "bound {bound:.3} s: what was used takes the disk that long, or the program itself does"
            ));
        }
        if let Some(share) = self.recovered_share {
            remarks.push(format!("recovered {:.0} % of what can be gained", share * 100.0));
        }
        if self.program_status != 0 {
            remarks.push(format!("the program failed: exit status {}", self.program_status));
        }
        if self.ready == Some(false) {
            remarks.push("the program ended without being ready: that time is not its readiness".into());
        }
        for rival in self.against.iter().filter(|rival| rival.status != 0) {
            remarks.push(format!("{} failed: exit status {}; it takes no part", rival.name, rival.status));
        }
        if self.read_ahead_kb_seen.len() > 1 {
            let seen: Vec<_> = self.read_ahead_kb_seen.iter().map(|kb| format!("{kb} KiB")).collect();
            remarks.push(format!("somebody changed the read-ahead meanwhile ({}): measure again", seen.join(", ")));
        }
        if self.recorded_meanwhile {
            remarks.push("somebody recorded meanwhile, and each fault mapped one page only: measure again".into());
        }
        let late = self.late_bytes.map_or("not observed".into(), size);
        remarks.push(format!(
            "prefetched {}: used {}, bridged {}, wasted {}; late {late}, stale {}; according to {}",
            size(self.prefetched_bytes),
            size(self.used_bytes),
            size(self.bridged_bytes),
            size(self.wasted_bytes),
            size(self.stale_bytes),
            self.used_according_to,
        ));
        if let Some(evicted) = self.rows().into_iter().filter_map(|(_, measured)| measured?.evicted_bytes).max()
            && evicted > 0
        {
            remarks.push(format!(
                "disturbed: the kernel evicted up to {} of these file systems during a run; such runs read it again",
                size(evicted)
            ));
        }
        if self.cold_state.evicted == "data" {
            remarks
                .push("cold: data (only pages of files that you own could be evicted; root evicts everything)".into());
        }
        if self.cold_state.evicted == "data" && self.model.is_some() {
            remarks.push("not cold: only root can empty the emulated drive's own buffer".into());
        }
        if self.cold_state.kept_bytes > 0 {
            let kept = size(self.cold_state.kept_bytes);
            remarks.push(format!("not cold: up to {kept} were kept in memory by other processes"));
        }
        if self.cold_state.unknown_bytes > 0 {
            let unknown = size(self.cold_state.unknown_bytes);
            remarks
                .push(format!("perhaps not cold: of {unknown} the kernel does not tell whether they were in memory"));
        }
        if self.beyond_rig {
            remarks.push("the disk's model is faster than this machine can emulate: times are too long".into());
        }
        remarks
    }

    /// As people read it on a terminal.
    pub fn render(&self, screen: Screen) -> String {
        let lines: String = self.remarks().into_iter().map(|remark| remark + "\n").collect();
        let (heading, table) = (screen.heading(&self.short_command()), self.table().render(screen));
        format!("{heading}\n{}\n\n{table}\n{lines}{}\n", self.conditions(), screen.heading(&self.verdict))
    }

    /// A command line can be a whole script.
    fn short_command(&self) -> String {
        match self.command_line.char_indices().nth(COMMAND_SHOWN) {
            Some((at, _)) => format!("{}…", &self.command_line[..at]),
            None => self.command_line.clone(),
        }
    }

    fn conditions(&self) -> String {
        let disk = |model: &str| format!(", emulated disk: {}", printable(model.as_bytes()));
        let disk = self.model.as_deref().map_or(String::new(), disk);
        let window = self.read_ahead_kb.map_or("unknown".into(), |kb| format!("{kb} KiB"));
        let (kernel, machine, runs) = (&self.kernel, &self.machine, self.runs);
        format!("Linux {kernel}, {machine}; read-ahead {window}{disk}; {runs} rounds, interleaved")
    }

    /// As a page with a picture.
    pub fn page(&self) -> String {
        let bars: Vec<Bar> = self
            .rows()
            .into_iter()
            .filter_map(|(name, measured)| Some((name, measured?.spread.clone())))
            .map(|(name, spread)| Bar {
                label: name.to_owned(),
                tone: match name {
                    "cold" => Tone::Cold,
                    "ahead" => Tone::Ahead,
                    "warm" => Tone::Warm,
                    _ => Tone::Other,
                },
                median: spread.median_s,
                min: spread.min_s,
                max: spread.max_s,
            })
            .collect();
        let marker = self.bound_s.map(|bound| (bound, "no faster is possible"));
        let mut page = Page::new("Cold, with ahead, warm");
        page.code(&self.command_line).text(&self.conditions());
        page.section(&self.verdict);
        page.picture(&svg::bars(&bars, "s", marker), "Median, and from the fastest to the slowest run");
        page.table(&self.table());
        for remark in self.remarks() {
            page.text(&remark);
        }
        page.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(min_s: f64, median_s: f64, max_s: f64) -> Spread {
        Spread { median_s, min_s, max_s }
    }

    #[test]
    fn overlapping_runs_are_no_gain() {
        let verdict = |cold, ahead| verdict(&cold, &ahead, 5);
        assert!(verdict(spread(1.0, 2.0, 3.0), spread(0.5, 1.0, 1.5)).starts_with("no gain"));
        let faster = verdict(spread(2.0, 2.0, 3.0), spread(0.5, 1.0, 1.5));
        assert_eq!(faster, "2.0 times faster with ahead, in every run");
        assert!(verdict(spread(1.0, 1.0, 1.0), spread(2.0, 2.0, 2.0)).starts_with("SLOWER"));
    }

    /// Regression: one run of each was "every run".
    #[test]
    fn one_run_is_not_called_every_run() {
        let (slow, fast) = (spread(2.0, 2.0, 2.0), spread(1.0, 1.0, 1.0));
        assert_eq!(verdict(&slow, &fast, 1), "2.0 times faster with ahead, in the one run of each");
        assert_eq!(verdict(&fast, &slow, 1), "SLOWER with ahead: 2.00 times the cold time, in the one run of each");
    }

    #[test]
    fn the_share_needs_something_to_gain() {
        assert_eq!(recovered_share(3.0, 2.0, 1.0, 0.1), Some(0.5));
        assert_eq!(recovered_share(1.0, 1.0, 1.0, 0.0), None);
        // Regression: 13 ms more than a cold time of 5.0 ms (4.8 to 6.2), with a bound of 3.9 ms, was "-1217 %".
        assert_eq!(recovered_share(0.0050, 0.0184, 0.0039, 0.0014), None);
    }
}
