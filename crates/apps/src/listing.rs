//! What is known, for people and for programs: a table, JSON, a page.

use crate::decision::{StartSituation, UserChoice, WaitLimits, decide, too_little_gain};
use crate::key::Script;
use crate::store::{App, AppStore, AppsError, UserStore};
use ahead_report::html::Page;
use ahead_report::number::{date, grouped, share, size, time};
use ahead_report::svg::{SERIES, rows, stacked};
use ahead_report::table::{Kind, Table};
use ahead_report::text::printable;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A program of a user.
#[derive(Clone, Debug)]
pub struct ListedApp {
    /// The user.
    pub user: u32,
    /// What is known.
    pub app: App,
    /// Recorded starts in its profile.
    pub recordings: usize,
}

/// Programs that a page shows each by itself; the rest is one part.
const SHOWN_APPS: usize = SERIES.len() - 1;

impl AppStore {
    /// The programs of these users, those that saved most first, and why the service does nothing for them.
    ///
    /// # Errors
    /// The directory of a user cannot be used.
    pub fn listed(&self, users: &[u32]) -> Result<(Vec<ListedApp>, Option<&'static str>), AppsError> {
        let found = users.iter().filter_map(|user| self.user(*user).transpose());
        let found: Vec<UserStore> = found.collect::<Result<_, _>>()?;
        let mut listed: Vec<ListedApp> = found.iter().flat_map(UserStore::listed).collect();
        listed.sort_by_key(|entry| std::cmp::Reverse(entry.saved_us()));
        let all = self.is_off().then_some("switched off for all users; sudo ahead apps on switches it on");
        let own = found.iter().any(UserStore::is_off);
        let own = own.then_some("switched off by its user; ahead apps on switches it on");
        Ok((listed, all.or(own)))
    }
}

impl UserStore {
    /// The programs, those that saved most first.
    pub fn listed(&self) -> Vec<ListedApp> {
        let listed = |app: App| {
            let recordings = self.recordings(&app.key).map_or(0, |kept| kept.numbers().len());
            ListedApp { user: self.user(), app, recordings }
        };
        let mut all: Vec<ListedApp> = self.apps().into_iter().map(listed).collect();
        all.sort_by(|a, b| b.saved_us().cmp(&a.saved_us()).then_with(|| a.app.key.cmp(&b.app.key)));
        all
    }
}

impl ListedApp {
    /// Saved in all, measured and estimated, microseconds.
    pub fn saved_us(&self) -> i64 {
        self.app.history.measured_us.saturating_add(self.app.history.estimated_us)
    }

    /// What happens at the next start, and why.
    pub fn state(&self) -> String {
        let situation = StartSituation { recordings: self.recordings, ..StartSituation::default() };
        let pinned = StartSituation { recordings: self.recordings.max(1), ..situation };
        let is_pinned = self.app.choice == UserChoice::Pinned;
        let situation = if is_pinned { pinned } else { situation };
        let reason = decide(&self.app.history, self.app.choice, &situation, &WaitLimits::default()).reason;
        match too_little_gain(&self.app.history) {
            Some(gain) if is_pinned => {
                format!("{reason}; no gain after {} cold starts: {}", self.app.history.compared, signed(gain.saved_us))
            }
            _ => reason.to_string(),
        }
    }

    fn saved(&self) -> String {
        let history = &self.app.history;
        match (history.measured_us, history.estimated_us) {
            (0, 0) => String::from("–"),
            (measured, 0) => signed(measured),
            (0, estimated) => format!("est. {}", signed(estimated)),
            (measured, estimated) => format!("{} + est. {}", signed(measured), signed(estimated)),
        }
    }

    fn json(&self) -> Value {
        let App { key, choice, history, .. } = &self.app;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (script, module) = match &key.script {
            Some(Script::File(path)) => (Some(text(path)), None),
            Some(Script::Module(name)) => (None, Some(text(name))),
            None => (None, None),
        };
        let gain = history
            .gain()
            .map(|gain| json!({ "saved_us": gain.saved_us, "start_us": gain.start_us, "measured": gain.is_measured }));
        let days = history.days.iter().map(|(day, saved)| json!({ "day": day_text(*day), "saved_us": saved }));
        json!({
            "key": key.directory_name(), "name": key.name(), "user": self.user, "program": text(&key.program),
            "script": script, "module": module, "variant": key.variant, "choice": choice,
            "recordings": self.recordings, "state": self.state(),
            "starts": history.starts, "cold_starts": history.cold_starts, "left_alone": history.left_alone,
            "saved_measured_us": history.measured_us, "saved_estimated_us": history.estimated_us, "gain": gain,
            "issued_bytes": history.issued_bytes, "wasted_bytes": history.wasted_bytes,
            "recent": history.recent, "days": days.collect::<Vec<_>>(),
        })
    }
}

/// A JSON object. `off`: why the service does nothing; `None`: it works.
pub fn json(listed: &[ListedApp], off: Option<&str>) -> Value {
    json!({ "off": off, "apps": listed.iter().map(ListedApp::json).collect::<Vec<_>>() })
}

/// A table. `of_all`: with the users.
pub fn table(listed: &[ListedApp], of_all: bool) -> Table {
    let columns = [
        ("program", Kind::Text),
        ("starts", Kind::Number),
        ("cold", Kind::Number),
        ("saved", Kind::Number),
        ("wasted", Kind::Number),
        ("at the next start", Kind::Text),
    ];
    let mut table = Table::new(of_all.then_some(("user", Kind::Number)).into_iter().chain(columns));
    for entry in listed {
        let history = &entry.app.history;
        let cells = [
            printable(entry.app.key.name().as_bytes()),
            grouped(history.starts),
            grouped(history.cold_starts),
            entry.saved(),
            size(history.wasted_bytes),
            entry.state(),
        ];
        table.row(of_all.then(|| entry.user.to_string()).into_iter().chain(cells));
    }
    table
}

/// A page: seconds saved by day and by program.
pub fn page(listed: &[ListedApp], of_all: bool) -> String {
    let sum = |of: fn(&ListedApp) -> u64| listed.iter().map(of).fold(0u64, u64::saturating_add);
    let saved = |of: fn(&ListedApp) -> i64| listed.iter().map(of).fold(0i64, i64::saturating_add);
    let (issued, wasted) = (sum(|it| it.app.history.issued_bytes), sum(|it| it.app.history.wasted_bytes));
    let mut page = Page::new("Programs that start faster");
    page.figures(&[
        ("saved, measured".into(), signed(saved(|it| it.app.history.measured_us))),
        ("saved, estimated".into(), signed(saved(|it| it.app.history.estimated_us))),
        ("cold starts".into(), grouped(sum(|it| it.app.history.cold_starts))),
        ("prefetched and not used".into(), share(wasted, issued)),
    ]);
    page.text(
        "Saved: the wait for the disk of cold starts that were left alone, less the wait of those that were prefetched. Before one was left \
         alone, the waits of starts without a profile are the measure: an estimate.",
    );
    let shown: Vec<&ListedApp> = listed.iter().filter(|entry| entry.saved_us() > 0).take(SHOWN_APPS).collect();
    if shown.is_empty() {
        page.section("Nothing was saved yet");
        page.text("A program is recorded after a start that waited for the disk, and prefetched from the next one on.");
    } else {
        by_day(&mut page, listed, &shown);
        by_program(&mut page, listed);
    }
    page.section("All programs").table(&table(listed, of_all));
    page.render()
}

fn by_day(page: &mut Page, listed: &[ListedApp], shown: &[&ListedApp]) {
    let mut names: Vec<String> = shown.iter().map(|entry| entry.app.key.name()).collect();
    names.push("others".into());
    let mut days: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for entry in listed {
        let is_shown = |other: &&ListedApp| other.user == entry.user && other.app.key == entry.app.key;
        let part = shown.iter().position(is_shown).unwrap_or(shown.len());
        for (day, saved_us) in &entry.app.history.days {
            days.entry(*day).or_insert_with(|| vec![0.0; names.len()])[part] += *saved_us as f64 / 1e6;
        }
    }
    // A day that lost time shows nothing: a stack has no part below 0.
    days.values_mut().flatten().for_each(|seconds| *seconds = seconds.max(0.0));
    let labels: Vec<(String, &[f64])> = days.iter().map(|(day, parts)| (day_text(*day), &parts[..])).collect();
    let bars: Vec<(&str, &[f64])> = labels.iter().map(|(day, parts)| (day.as_str(), *parts)).collect();
    let parts: Vec<&str> = names.iter().map(String::as_str).collect();
    let legend: Vec<(&str, &str)> = SERIES.iter().copied().zip(parts.iter().copied()).collect();
    page.section("By day").picture(&stacked("day", "seconds saved", &parts, &bars), "").legend(&legend);
}

fn by_program(page: &mut Page, listed: &[ListedApp]) {
    /// Rows that fit on a screen.
    const MOST: usize = 20;
    let seconds = |us: i64| us.max(0) as f64 / 1e6;
    let saved = |entry: &ListedApp| {
        let history = &entry.app.history;
        (entry.app.key.name(), [seconds(history.measured_us), seconds(history.estimated_us)])
    };
    let best: Vec<_> = listed.iter().filter(|entry| entry.saved_us() > 0).take(MOST).map(saved).collect();
    let shown: Vec<(&str, &[f64])> = best.iter().map(|(name, parts)| (name.as_str(), &parts[..])).collect();
    let parts = ["measured", "estimated"];
    let legend: Vec<(&str, &str)> = SERIES.iter().copied().zip(parts).collect();
    page.section("By program").picture(&rows("s", &parts, &shown), "").legend(&legend);
}

fn day_text(day: u32) -> String {
    date(u64::from(day) * 86_400)[..10].to_owned()
}

fn signed(us: i64) -> String {
    let sign = if us < 0 { "−" } else { "" };
    format!("{sign}{}", time(us.unsigned_abs()))
}
