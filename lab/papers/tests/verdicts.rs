//! The statements of the papers hold in the simulator, except the named lines, each with its reason.

use ahead_papers::{
    Asked, Line, Live, LiveError, Measured, Observed, Outcome, PAPERS, Plot, SystemCalls, Verdict, named,
};
use ahead_sim::Scenario;
use std::collections::BTreeSet;

/// A page cache that is always as fast as the program.
struct Ideal;

impl Live for Ideal {
    fn run(&self, asked: &Asked) -> Result<Observed, LiveError> {
        let stream = asked.scenario.workloads[0].streams[0];
        let user_ns = (stream.user_per_page_ns * stream.file_pages as f64) as u64;
        Ok(Observed { elapsed_ns: user_ns, user_ns, read_bytes: stream.file_pages * 4096, ..Observed::default() })
    }

    fn system_calls(&self, _: &Scenario) -> Result<SystemCalls, LiveError> {
        Ok(SystemCalls::default())
    }
}

/// No disk is available.
struct Broken;

impl Live for Broken {
    fn run(&self, _: &Asked) -> Result<Observed, LiveError> {
        Err("no disk".into())
    }

    fn system_calls(&self, _: &Scenario) -> Result<SystemCalls, LiveError> {
        Err("no disk".into())
    }
}

/// With this page cache.
fn with(live: &dyn Live) -> Measured<'_> {
    Measured { live: Some(live), boots: None }
}

/// The live results, in the order of the lines.
fn live(outcome: &Outcome) -> Vec<&str> {
    outcome.lines.iter().filter_map(|line| line.live.as_deref()).collect()
}

fn run(name: &str) -> Outcome {
    named(name).unwrap().run(&Measured::default()).unwrap()
}

fn count(outcome: &Outcome, verdict: Verdict) -> usize {
    outcome.lines.iter().filter(|line| line.verdict == verdict).count()
}

/// Checks that exactly these lines differ, each given by the beginning of its claim.
fn differ_only(lines: &[Line], known: &[&str]) {
    let differ: Vec<&Line> = lines.iter().filter(|line| line.verdict == Verdict::Differs).collect();
    for line in &differ {
        assert!(known.iter().any(|begin| line.claim.starts_with(begin)), "{line:#?}");
    }
    for begin in known {
        assert!(differ.iter().any(|line| line.claim.starts_with(begin)), "holds now: {begin}");
    }
}

/// Checks that every outcome is complete for its readers.
fn is_complete(name: &str, outcome: &Outcome) {
    let claims: BTreeSet<&str> = outcome.lines.iter().map(|line| line.claim.as_str()).collect();
    assert_eq!(claims.len(), outcome.lines.len(), "each claim once");
    for line in &outcome.lines {
        assert_eq!(line.paper, name);
        assert!(!line.quoted.is_empty() && !line.tolerance.is_empty(), "{line:#?}");
        assert!(!line.ours.is_empty() || line.verdict == Verdict::NotShown, "{line:#?}");
    }
    assert!(!outcome.inputs.is_empty() && !outcome.figures.is_empty());
    for figure in &outcome.figures {
        let is_drawn = match &figure.plot {
            Plot::Lines { series, .. } => !series.is_empty() && series.iter().all(|series| series.points.len() > 1),
            Plot::Stacked { parts, bars, .. } => bars.iter().all(|bar| bar.values.len() == parts.len()),
        };
        assert!(is_drawn, "{figure:#?}");
    }
}

#[test]
fn roudier() {
    let outcome = run("roudier");
    is_complete("roudier", &outcome);
    differ_only(
        &outcome.lines,
        &[
            // A command's time is assumed, and no other process uses the processor.
            "Bonnie, input per character, synchronous: speed",
            "Bonnie, input per character, asynchronous: speed",
            "Bonnie, input per character, asynchronous: load",
            "Bonnie, input per character: gain",
            // The disk's model favours writes.
            "Bonnie, rewrite, synchronous: speed",
            "Bonnie, rewrite, synchronous: load",
            "Bonnie, rewrite, asynchronous: speed",
            "Bonnie, rewrite: gain",
            "Bonnie, block output, synchronous: speed",
        ],
    );
    // Inputs: block input, the loads of block output and of the row that gives the program's time. Not shown: output
    // per character, writes that are equal in both kernels, and the row that the paper leaves out.
    assert_eq!(count(&outcome, Verdict::NotShown), 13);
    assert_eq!(count(&outcome, Verdict::Answered), 2);
}

#[test]
fn oconnor_and_tracy() {
    let outcome = named("oconnor-tracy").unwrap().run(&with(&Ideal)).unwrap();
    assert_eq!(live(&outcome), ["14.2 MB/s on the running kernel"]);
    is_complete("oconnor-tracy", &outcome);
    differ_only(
        &outcome.lines,
        &[
            // Only with DMA: programmed input ends before the program can continue.
            "figure 1: hits on locked pages as n grows",
            // All from 64 to 256 are within two percent of each other.
            "figure 2: roughly 64 pages",
            "why does throughput peak",
            // Nothing in the text explains five seconds of system time.
            "figure 3, first phase",
            // Our queue has room for 256 pages, the paper's for a few more.
            "figure 6: idle time falls with 256 pages",
            // The first 256 pages of each group fit into the queue.
            "figure 7: waits for the queue, 512 pages",
            // Disk and program are nearly equally fast.
            "figure 7: waits with 8 and 16 pages",
            // With two pages the numbers are equal.
            "figure 7: in every case fewer waits",
            // The queue becomes empty at each of ext2's pointer blocks.
            "figure 7: beyond 512 pages the queue is saturated",
        ],
    );
    assert_eq!(count(&outcome, Verdict::Answered), 8, "every question that the paper leaves open, except the peak");
    assert_eq!(count(&outcome, Verdict::NotShown), 6, "five are inputs, and a check costs no time");
    let titles: Vec<&str> = outcome.figures.iter().map(|figure| figure.title.as_str()).collect();
    for number in 1..=7 {
        assert!(titles.iter().any(|title| title.starts_with(&format!("Figure {number}"))), "{titles:?}");
    }
}

#[test]
fn live_results_appear_only_with_a_live_page_cache() {
    let roudier = named("roudier").unwrap();
    let outcome = roudier.run(&with(&Ideal)).unwrap();
    assert_eq!(live(&outcome), ["4.00 MB/s", "100.0 %"]);
    for line in &outcome.lines {
        assert_eq!(line.live_verdict, line.live.as_ref().map(|_| Verdict::Holds), "{line:?}");
    }
    assert!(live(&roudier.run(&Measured::default()).unwrap()).is_empty());
    assert_eq!(roudier.run(&with(&Broken)).unwrap_err().to_string(), "no disk");
}

#[test]
fn repeated_run_has_the_same_outcome() {
    assert_eq!(run("roudier"), run("roudier"));
}

#[test]
fn papers_are_found_by_their_names() {
    let names: BTreeSet<&str> = PAPERS.iter().map(|paper| paper.name).collect();
    assert_eq!(names.len(), PAPERS.len());
    for paper in PAPERS {
        assert_eq!(named(paper.name).unwrap().title, paper.title);
        assert!(!paper.story.is_empty() && !paper.authors.is_empty() && (1990..2030).contains(&paper.year));
    }
    let error = named("card").unwrap_err().to_string();
    assert!(PAPERS.iter().all(|paper| error.contains(paper.name)), "{error}");
}

/// The two settings of the machine differ only in the component that moves the data.
#[test]
fn both_settings_differ_only_in_the_data_path() {
    let plain = |text: &str, moved: &[&str]| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.filter(|line| !moved.iter().any(|key| line.starts_with(key))).map(str::to_owned).collect()
    };
    let [pio, dma] = [include_str!("../oconnor_tracy/mmapit-pio.toml"), include_str!("../oconnor_tracy/mmapit.toml")];
    let keys = ["name", "pio_us_per_page", "model"];
    assert_eq!(plain(pio, &keys), plain(dma, &keys));
    let [pio, dma] = ["fireball-pio", "fireball"].map(|name| ahead_device::Model::builtin_toml(name).unwrap());
    let keys = ["name", "description", "interface_mb_per_s"];
    assert_eq!(plain(pio, &keys), plain(dma, &keys));
}
