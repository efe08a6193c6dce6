//! The verdicts on Opdenacker's boots and system calls. A change of the simulator that breaks a line fails here.

mod common;

use ahead_papers::{
    Asked, CallTime, Line, Live, LiveError, Loaded, Measured, Observed, Outcome, RealBoots, SystemCalls,
};
use ahead_papers::{Verdict, named};
use ahead_sim::Scenario;
use std::ops::Range;
use std::path::Path;

#[test]
fn every_line_comes_to_what_it_came_to() {
    common::check(
        "opdenacker",
        &Measured::default(),
        44,
        &[
            ("readahead reads whole pages", "not-shown"),
            ("readahead blocks until all data have been read", "not-shown"),
            ("the readahead system call is binding", "not-shown"),
            ("POSIX_FADV_WILLNEED does not block", "not-shown"),
            ("POSIX_FADV_NOREUSE", "not-shown"),
            ("POSIX_FADV_DONTNEED", "not-shown"),
            ("fadvise is not binding", "not-shown"),
            ("madvise reads pages of a mapped file", "not-shown"),
            ("the adaptive patches' window", "not-shown"),
            ("Ubuntu Edgy, boot time without readahead", "not-shown"),
            ("Ubuntu Edgy, idle time without readahead", "not-shown"),
            ("standard deviations, Ubuntu Edgy", "not-shown"),
            ("standard deviations, Fedora Core 6", "not-shown"),
            ("Fedora Core 6, boot time without readahead", "not-shown"),
            ("Fedora Core 6, idle time without readahead", "not-shown"),
            ("Fedora Core 6, boot time with readahead", "differs"),
            ("Fedora Core 6, change of boot time", "differs"),
            ("Fedora Core 6, idle time with readahead", "differs"),
            ("Fedora Core 6, change of idle time", "differs"),
            ("real boots: change of boot time", "not-shown"),
            ("real boots: change of idle time", "not-shown"),
            ("real boots: boot time", "not-shown"),
            ("demand paging loads each page only", "not-shown"),
        ],
    );
}

/// A kernel whose calls do these.
struct Kernel(SystemCalls);

impl Live for Kernel {
    fn run(&self, _: &Asked) -> Result<Observed, LiveError> {
        Err("Opdenacker's paper has no workload".into())
    }

    fn system_calls(&self, _: &Scenario) -> Result<SystemCalls, LiveError> {
        Ok(self.0.clone())
    }
}

fn loaded(asked: Range<u64>, loaded: &[Range<u64>]) -> Loaded {
    Loaded { asked, loaded: loaded.to_vec() }
}

fn calls(times_ms: &[(u64, u64)]) -> Vec<CallTime> {
    let time = |(returned, arrived): &(u64, u64)| CallTime {
        returned_ns: returned * 1_000_000,
        arrived_ns: arrived * 1_000_000,
    };
    times_ms.iter().map(time).collect()
}

/// The kernel that the paper describes.
fn kernel_of_the_paper() -> SystemCalls {
    let all = 0..4096;
    SystemCalls {
        longest_pages: [32, 64, 1],
        unaligned: loaded(5000..9000, &[4096..12_288]),
        long: loaded(0..1 << 20, &[0..1 << 20]),
        readahead_cold_map: calls(&[(20, 20)])[0],
        // Another program has delayed a call.
        readahead: calls(&[(9, 9), (8, 8), (8, 60), (7, 7), (8, 8)]),
        will_need: loaded(0..4096, std::slice::from_ref(&all)),
        will_need_times: calls(&[(0, 9), (50, 51), (0, 8)]),
        no_reuse: loaded(0..4096, std::slice::from_ref(&all)),
        cached: 0..8192,
        dont_need: loaded(0..4096, &[4096..8192]),
        dont_need_mapped: loaded(0..4096, std::slice::from_ref(&all)),
        map_will_need: loaded(0..4096, std::slice::from_ref(&all)),
        map_page_out: loaded(0..4096, &[]),
        touched_pages: 16,
        faulted_pages: [16, 16],
        program_pages: 1000,
        started_pages: 500,
    }
}

/// A kernel that does the opposite.
fn other_kernel() -> SystemCalls {
    let two = 0..8192;
    SystemCalls {
        longest_pages: [16, 16, 4],
        unaligned: loaded(5000..9000, &[4096..8192]),
        long: loaded(0..1 << 20, &[0..1 << 17]),
        readahead: calls(&[(0, 9), (8, 8), (0, 7)]),
        will_need: loaded(0..4096, std::slice::from_ref(&two)),
        will_need_times: calls(&[(9, 9), (8, 8), (0, 7)]),
        no_reuse: loaded(0..4096, &[]),
        cached: 0..8192,
        dont_need: loaded(0..4096, std::slice::from_ref(&two)),
        dont_need_mapped: loaded(0..4096, &[]),
        map_will_need: loaded(0..4096, &[]),
        map_page_out: loaded(0..4096, std::slice::from_ref(&two)),
        touched_pages: 16,
        faulted_pages: [512, 16],
        program_pages: 1000,
        started_pages: 900,
        ..SystemCalls::default()
    }
}

fn run(measured: &Measured) -> Outcome {
    named("opdenacker").unwrap().run(measured).unwrap()
}

fn line<'a>(outcome: &'a Outcome, claim: &str) -> &'a Line {
    let mut lines = outcome.lines.iter().filter(|line| line.claim.contains(claim));
    let line = lines.next().unwrap_or_else(|| panic!("no line: {claim}"));
    assert!(lines.next().is_none(), "two lines: {claim}");
    line
}

fn boots(name: &str) -> RealBoots {
    RealBoots::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)).unwrap()
}

#[test]
fn system_calls_of_a_kernel_are_compared_with_the_paper() {
    for (seen, verdict) in [(kernel_of_the_paper(), Verdict::Holds), (other_kernel(), Verdict::Differs)] {
        let outcome = run(&Measured { live: Some(&Kernel(seen)), boots: None });
        let live: Vec<&Line> = outcome.lines.iter().filter(|line| line.live.is_some()).collect();
        assert_eq!(live.len(), 14);
        for line in live {
            assert_eq!(line.live_verdict, Some(verdict), "{line:?}");
        }
    }
}

#[test]
fn real_boots_stand_beside_the_papers_table() {
    let boots = boots("boot.json");
    let outcome = run(&Measured { live: None, boots: Some(&boots) });
    let shown = |claim: &str| {
        let line = line(&outcome, claim);
        (line.live.as_deref().unwrap_or("nothing"), line.live_verdict)
    };
    let holds = Some(Verdict::Holds);
    assert_eq!(
        shown("minbase on hdd, change of boot time"),
        ("whole files -50.0 %, our replay before PID 1 -62.5 %, warm -75.0 %", holds)
    );
    assert_eq!(
        shown("minbase on hdd, change of idle time"),
        ("whole files -50.0 %, our replay before PID 1 -60.0 %, warm -70.0 %", holds)
    );
    let (seconds, verdict) = shown("minbase on hdd, boot time");
    assert!(seconds.starts_with("nothing 4.000 s, deviation 0.200 s (3 boots), whole files 2.000 s"), "{seconds}");
    assert!(seconds.ends_with("warm 1.000 s, deviation 0.000 s (1 boot)") && verdict.is_none(), "{seconds}");
    // Slower, as on Fedora Core 6; no idle time from which a change could be computed.
    assert_eq!(shown("minbase on cloud, change of boot time"), ("whole files +10.0 %", Some(Verdict::Differs)));
    assert_eq!(shown("minbase on cloud, change of idle time"), ("nothing", None));
    // Without boots to compare with.
    assert_eq!(shown("services on hdd, change of boot time"), ("nothing", None));
    assert_eq!(shown("services on hdd, boot time").0, "our unit 9.000 s, deviation 0.000 s (1 boot)");
    let with = line(&outcome, "minbase on hdd, change of boot time");
    assert!(with.quoted.contains("-17.4 %") && with.verdict == Verdict::NotShown);
    assert!(with.tolerance.contains("x86_64, 2 CPUs, 24 GiB, Linux 6.18.44, commit ca7467d, 2026-11-24"), "{with:?}");
    assert!(!outcome.lines.iter().any(|line| line.tolerance.contains("make bench-boot")));
    let missing = run(&Measured::default());
    assert_eq!(missing.lines.iter().filter(|line| line.tolerance.contains("make bench-boot")).count(), 3);
}
