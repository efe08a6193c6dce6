//! Michael Opdenacker, "Readahead: time-travel techniques for desktop and embedded systems" (2007). Its claims: `opdenacker/claims.toml`.
//!
//! In Rust: a boot of measured programs with a list or with windows, a policy by itself, and boots of real systems.

mod kernel;
mod real;

use crate::boot::{Boot, Events, Order, Parts};
use crate::claims::Claims;
use crate::claims::runs::{Experiment, Setup, counters};
use crate::claims::value::{Number, Value, wrong};
use crate::{Live, Measured, Outcome, Paper, PaperError};
use ahead_sim::{Counters, Program};

/// The source.
pub const PAPER: Paper = Paper {
    name: "opdenacker",
    title: "Readahead: time-travel techniques for desktop and embedded systems",
    authors: "Michael Opdenacker",
    year: 2007,
    story: "Distributions read whole files ahead at boot, by place, which made one boot faster and another slower. A boot of \
            measured programs shows the flaws of this, and the windows that the paper proposes are implemented and tried.",
    run,
};

const CLAIMS: Claims = Claims {
    paper: PAPER.name,
    text: include_str!("../opdenacker/claims.toml"),
    files: &[
        ("boot.toml", include_str!("../opdenacker/boot.toml")),
        ("disk.toml", include_str!("../opdenacker/disk.toml")),
    ],
    experiments: &[
        ("reader", Experiment::Simulated(kernel::run)),
        ("boot", Experiment::Simulated(boot)),
        ("system calls", Experiment::Real(system_calls)),
    ],
};

/// The kernel of the paper's time.
const KERNEL: &str = "linux-2.6";

fn run(measured: &Measured) -> Result<Outcome, PaperError> {
    let mut outcome = CLAIMS.run(measured)?;
    // Real boots are beside table 1, before the shortcomings of section 4.4.
    let at = outcome.lines.iter().position(|line| line.claim.starts_with("4.4")).unwrap_or(outcome.lines.len());
    outcome.lines.splice(at..at, real::lines(measured.boots));
    outcome.inputs.extend(measured.boots.map(real::input));
    Ok(outcome)
}

fn system_calls(setup: &Setup, live: &dyn Live) -> Result<Value, PaperError> {
    Ok(Value::of(&live.system_calls(&setup.scenario)?))
}

/// A boot of `programs`. `prefetch`: none, a list `beside` the boot, one `before` it, or `windows` over what was recorded.
fn boot(setup: &Setup) -> Result<Value, PaperError> {
    let optional = |name: &str| setup.whole(name).unwrap_or(0);
    let mut boot = Boot::new(setup.texts("programs")?);
    (boot.compute_ns, boot.sleep_ns) = (optional("compute_ns"), optional("sleep_ns"));
    let value = match setup.text("prefetch").as_deref() {
        Err(_) => counters(&run_programs(setup, &boot.file_pages(), vec![boot.program()])?),
        Ok("windows") => {
            let events = if setup.text("events")? == "starts" { Events::Starts } else { Events::Files };
            let pages = setup.whole("window_pages")?;
            let windows = Box::new(boot.windows(pages, events));
            let seen = setup.scenario.machine_with(windows, &boot.file_pages(), vec![boot.program()]).run();
            counters(&seen).with("merged", Number(boot.merged_within(pages) as f64))
        }
        Ok(way) => with_list(setup, &boot, way)?,
    };
    Ok(value.with("runs", Number(boot.runs() as f64)))
}

/// A boot with a list of the files of `listed`, and `more_mb` behind it that no process needs.
fn with_list(setup: &Setup, boot: &Boot, way: &str) -> Result<Value, PaperError> {
    let parts = if setup.text("parts")? == "files" { Parts::Files } else { Parts::Sections };
    let order = if setup.text("order")? == "place" { Order::Place } else { Order::Time };
    let list = boot.list(&setup.texts("listed")?, parts);
    let listed_pages: u64 = list.iter().map(|section| section.pages).sum();
    let (reader, mut file_pages) = (boot.reader(list, order), boot.file_pages());
    let programs = match way {
        "beside" => vec![boot.program(), reader],
        "before" => {
            let more_mb = setup.whole("more_mb")?;
            file_pages.push(more_mb << 8);
            let ops = Box::new(reader.ops.chain(boot.surplus(more_mb)).chain(boot.program().ops));
            vec![Program { ops, user_per_page_ns: 0.0 }]
        }
        _ => return Ok(wrong(format!("unknown way to prefetch {way:?}"))?),
    };
    let seen = run_programs(setup, &file_pages, programs)?;
    Ok(counters(&seen).with("listed_pages", Number(listed_pages as f64)))
}

fn run_programs(setup: &Setup, file_pages: &[u64], programs: Vec<Program>) -> Result<Counters, PaperError> {
    Ok(setup.scenario.machine_for(&ahead_policy::named(KERNEL)?, file_pages, programs)?.run())
}
