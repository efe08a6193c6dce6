//! Table 1 repeated: boots of real systems, as changes of boot and idle time. The paper's seconds stay inputs of the simulated boots; its
//! systems and disks are not there any more, so that only the direction of a change is compared.

use crate::boots::{Disk, NOTHING, RealBoots, WHOLE_FILES, Way, change_percent, deviation, mean};
use crate::{Input, Lines, Outcome};
use ahead_report::number::count;

const BOOT: &str = "-17.4 % (Ubuntu Edgy), +18.7 % (Fedora Core 6)";
const IDLE: &str = "-23.3 % (Ubuntu Edgy), +20.2 % (Fedora Core 6)";
const DEVIATIONS: &str = "0.153 s without, 1.296 s with a list (Ubuntu Edgy); 0.496, 0.552 s (Fedora Core 6)";
const MISSING: &str = "run make bench-boot, and then ahead papers opdenacker --boots bench/results/boot.json";

/// Adds the lines of all systems and disks; without boots, lines that say how to get them.
pub(super) fn add(boots: Option<&RealBoots>, outcome: &mut Outcome, lines: &mut Lines) {
    let Some(boots) = boots else {
        for (what, quoted) in [("change of boot time", BOOT), ("change of idle time", IDLE), ("boot time", DEVIATIONS)]
        {
            lines.not_shown(&format!("table 1, real boots: {what}"), quoted, MISSING);
        }
        return;
    };
    outcome.inputs.push(Input::new("real boots", boots.origin(), "measured by make bench-boot, given with --boots"));
    for tree in &boots.trees {
        for disk in &tree.disks {
            let place = format!("table 1, real boots: {} on {}", tree.tree, disk.disk);
            add_disk(&place, &boots.origin(), disk, lines);
        }
    }
}

fn add_disk(place: &str, origin: &str, disk: &Disk, lines: &mut Lines) {
    let changes = [("boot", BOOT, boot_s as fn(&Way) -> &[f64]), ("idle", IDLE, idle_s)];
    for (what, quoted, values) in changes {
        let tolerance = format!(
            "measured: {origin}. Compared is the direction of Ubuntu's change, with a list of whole files of this boot"
        );
        let line = lines.not_shown(&format!("{place}, change of {what} time"), quoted, &tolerance);
        let change = |way: &Way| change_percent(values(disk.way(NOTHING)?), values(way));
        let shown = disk.ways.iter().filter(|way| way.way != NOTHING);
        let texts: Vec<String> =
            shown.filter_map(|way| change(way).map(|change| format!("{} {change:+.1} %", way.way))).collect();
        line.live = (!texts.is_empty()).then(|| texts.join(", "));
        if let Some(whole) = disk.way(WHOLE_FILES).and_then(change) {
            line.live_shape(Some((texts.join(", "), whole < 0.0)));
        }
    }
    let seconds = |way: &Way| {
        let boots = count(way.boot_s.len() as u64, "boot", "boots");
        let (boot, spread) = (mean(&way.boot_s), deviation(&way.boot_s));
        format!("{} {boot:.3} s, deviation {spread:.3} s ({boots})", way.way)
    };
    let texts: Vec<String> = disk.ways.iter().map(seconds).collect();
    let tolerance = format!("measured: {origin}. The seconds of another system cannot be compared");
    let line = lines.not_shown(&format!("{place}, boot time"), DEVIATIONS, &tolerance);
    line.live = (!texts.is_empty()).then(|| texts.join(", "));
}

fn boot_s(way: &Way) -> &[f64] {
    &way.boot_s
}

fn idle_s(way: &Way) -> &[f64] {
    &way.idle_s
}
