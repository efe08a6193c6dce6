//! Table 1 repeated: boots of real systems, as changes of boot and idle time. The paper's seconds stay inputs of the simulated boots; its
//! systems and disks are not there any more, so that only the direction of a change is compared.

use crate::boots::{Disk, NOTHING, RealBoots, WHOLE_FILES, Way, change_percent, deviation, mean};
use crate::{Input, Line, Verdict};
use ahead_report::number::count;

const BOOT: &str = "-17.4 % (Ubuntu Edgy), +18.7 % (Fedora Core 6)";
const IDLE: &str = "-23.3 % (Ubuntu Edgy), +20.2 % (Fedora Core 6)";
const DEVIATIONS: &str = "0.153 s without, 1.296 s with a list (Ubuntu Edgy); 0.496, 0.552 s (Fedora Core 6)";
const MISSING: &str = "run make bench-boot, and then ahead papers opdenacker --boots bench/results/boot.json";

/// Where the boots are from.
pub(super) fn input(boots: &RealBoots) -> Input {
    Input {
        what: "real boots".into(),
        value: boots.origin(),
        source: "measured by make bench-boot, given with --boots".into(),
    }
}

/// The lines of all systems and disks; without boots, lines that say how to get them.
pub(super) fn lines(boots: Option<&RealBoots>) -> Vec<Line> {
    let Some(boots) = boots else {
        return [("change of boot time", BOOT), ("change of idle time", IDLE), ("boot time", DEVIATIONS)]
            .map(|(what, quoted)| line(format!("table 1, real boots: {what}"), quoted, MISSING.into(), Vec::new()))
            .to_vec();
    };
    let disks = boots.trees.iter().flat_map(|tree| tree.disks.iter().map(move |disk| (tree, disk)));
    let lines = disks.flat_map(|(tree, disk)| {
        let place = format!("table 1, real boots: {} on {}", tree.tree, disk.disk);
        of_disk(&place, &boots.origin(), disk)
    });
    lines.collect()
}

fn of_disk(place: &str, origin: &str, disk: &Disk) -> [Line; 3] {
    let seconds = |way: &Way| {
        let boots = count(way.boot_s.len() as u64, "boot", "boots");
        let (boot, spread) = (mean(&way.boot_s), deviation(&way.boot_s));
        format!("{} {boot:.3} s, deviation {spread:.3} s ({boots})", way.way)
    };
    let tolerance = format!("measured: {origin}. The seconds of another system cannot be compared");
    let seconds = disk.ways.iter().map(seconds).collect();
    [
        change(&format!("{place}, change of boot time"), BOOT, origin, disk, |way| &way.boot_s),
        change(&format!("{place}, change of idle time"), IDLE, origin, disk, |way| &way.idle_s),
        line(format!("{place}, boot time"), DEVIATIONS, tolerance, seconds),
    ]
}

fn change(claim: &str, quoted: &str, origin: &str, disk: &Disk, values: fn(&Way) -> &[f64]) -> Line {
    let change = |way: &Way| change_percent(values(disk.way(NOTHING)?), values(way));
    let shown = disk.ways.iter().filter(|way| way.way != NOTHING);
    let texts = shown.filter_map(|way| change(way).map(|change| format!("{} {change:+.1} %", way.way)));
    let tolerance = format!(
        "measured: {origin}. Compared is the direction of Ubuntu's change, with a list of whole files of this boot"
    );
    let live_verdict = disk.way(WHOLE_FILES).and_then(change).map(|whole| Verdict::of(whole < 0.0));
    Line { live_verdict, ..line(claim.to_owned(), quoted, tolerance, texts.collect()) }
}

/// A line whose result is that of real boots, if there are texts about them.
fn line(claim: String, quoted: &str, tolerance: String, texts: Vec<String>) -> Line {
    let live = (!texts.is_empty()).then(|| texts.join(", "));
    let (paper, quoted, verdict) = (super::PAPER.name, quoted.to_owned(), Verdict::NotShown);
    Line { paper, claim, quoted, ours: String::new(), live, tolerance, verdict, live_verdict: None }
}
