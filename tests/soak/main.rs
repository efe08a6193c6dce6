//! Hostile input in process: no content of an untrusted file causes a panic, a hang, or more memory than its length
//! allows.
//!
//! ```text
//!     seed, number of the case ─▶ kind ─▶ a good input ─▶ changed at some places ─▶ read, and used
//!                                                                    │
//!          watchdog: longer than CASE_TIME, or more than HEAP_LIMIT_BYTES ─▶ input saved, the program ends
//! ```
//!
//! `make soak` runs it: `AHEAD_SOAK_SECONDS` or `AHEAD_SOAK_CASES` set the length, `AHEAD_SOAK_SEED` repeats a run,
//! `AHEAD_SOAK_FIRST` starts it at a case. `AHEAD_SOAK_KIND` selects one kind of input (its cases have other numbers).
//! Harmful inputs and the number of the last case are saved in `target/soak/`. `cargo test` runs [`ALWAYS`] cases.

mod kinds;
mod mutate;
mod regressions;

use ahead_sys::allocation::{self, Counting};
use ahead_sys::locks::IgnorePoison;
use kinds::Kind;
use mutate::Chance;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The cases of `cargo test`, with the same seed each time.
const ALWAYS: u64 = 2_000;
const ALWAYS_SEED: u64 = 15;

/// The time limit of a case. On a busy machine a case of milliseconds takes some tenths of a second.
const CASE_TIME: Duration = Duration::from_secs(30);

/// Memory that a case may allocate, bytes: a constant, and a number for each byte of its input.
const HEAP_BYTES: usize = 64 << 20;
const HEAP_BYTES_PER_BYTE: usize = 256;

/// The watchdog ends the program at this size, before the machine runs short of memory, bytes.
const HEAP_LIMIT_BYTES: usize = 3 << 30;

/// Time between two checks of the watchdog, and between two lines of progress.
const CHECK_EVERY: Duration = Duration::from_millis(20);
const PROGRESS_EVERY: Duration = Duration::from_secs(60);

/// The run ends after this many failures.
const FAILURES_MOST: usize = 20;

/// The length and the content of a run.
#[derive(Clone, Debug)]
struct Task {
    seed: u64,
    first: u64,
    cases: u64,
    time: Option<Duration>,
    kind: Option<String>,
}

/// The case that is running.
struct Current {
    case: u64,
    kind: &'static str,
    input: Vec<u8>,
    began: Instant,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    variable(name).map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: expected a number")))
}

/// Runs [`ALWAYS`] cases, or as many as the variables set.
#[test]
fn hostile_input_does_no_harm() {
    let time = number("AHEAD_SOAK_SECONDS").map(Duration::from_secs);
    run(&Task {
        seed: number("AHEAD_SOAK_SEED").unwrap_or(ALWAYS_SEED),
        first: number("AHEAD_SOAK_FIRST").unwrap_or(0),
        cases: number("AHEAD_SOAK_CASES").unwrap_or(if time.is_some() { u64::MAX } else { ALWAYS }),
        time,
        kind: variable("AHEAD_SOAK_KIND"),
    });
}

fn run(task: &Task) {
    println!("seed {} (AHEAD_SOAK_SEED={0} repeats it)", task.seed);
    let kinds: Vec<Kind> =
        kinds::all().into_iter().filter(|kind| task.kind.as_deref().is_none_or(|k| k == kind.name)).collect();
    assert!(!kinds.is_empty(), "no kind of input has this name");
    let turns: Vec<usize> = kinds.iter().enumerate().flat_map(|(at, kind)| [at].repeat(kind.weight)).collect();
    let trial = Trial::new(task.seed);
    let (mut counts, mut failures) = (vec![(0_u64, 0_u64); kinds.len()], Vec::new());
    let (began, mut reported) = (Instant::now(), Instant::now());
    let is_over = |done: u64| done >= task.cases || task.time.is_some_and(|time| began.elapsed() >= time);
    for done in 0.. {
        if is_over(done) || failures.len() >= FAILURES_MOST {
            break;
        }
        let case = task.first + done;
        let mut chance = Chance::of_case(task.seed, case);
        let at = *chance.pick(&turns);
        let input = (kinds[at].make)(&mut chance);
        let (tried, accepted) = &mut counts[at];
        match trial.run(&kinds[at], case, &input) {
            Ok(is_accepted) => *accepted += u64::from(is_accepted),
            Err(why) => failures.push(save(task.seed, case, kinds[at].name, &input, &why)),
        }
        *tried += 1;
        if reported.elapsed() >= PROGRESS_EVERY {
            reported = Instant::now();
            println!("{} cases, {} failures, {:.0} s", done + 1, failures.len(), began.elapsed().as_secs_f64());
        }
    }
    let of_kind =
        |(kind, (tried, accepted)): (&Kind, &(u64, u64))| format!("{tried} {} ({accepted} accepted)", kind.name);
    let by_kind: Vec<String> = kinds.iter().zip(&counts).map(of_kind).collect();
    let (total, seconds) = (counts.iter().map(|(tried, _)| tried).sum::<u64>(), began.elapsed().as_secs_f64());
    println!("{total} cases: {}; {} failures, {seconds:.0} s", by_kind.join(", "), failures.len());
    assert!(failures.is_empty(), "seed {}:\n{}", task.seed, failures.join("\n"));
}

/// Runs cases under the watchdog.
struct Trial {
    seed: u64,
    current: Arc<Mutex<Option<Current>>>,
    /// A file with the number of the case: the only trace of a case that ends the program (a stack overflow).
    last_case: Option<File>,
}

/// One run at a time, since memory is counted for the whole program.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Trial {
    fn new(seed: u64) -> Trial {
        let current: Arc<Mutex<Option<Current>>> = Arc::default();
        watch(seed, current.clone());
        let path = directory().join(format!("last-case-{seed}"));
        let last_case = std::fs::create_dir_all(directory()).and_then(|()| File::create(path)).ok();
        Trial { seed, current, last_case }
    }

    /// Returns whether the input was accepted, or the harm.
    fn run(&self, kind: &Kind, case: u64, input: &[u8]) -> Result<bool, String> {
        let _alone = lock(&ONE_AT_A_TIME);
        if let Some(file) = &self.last_case {
            let line = format!("AHEAD_SOAK_SEED={} AHEAD_SOAK_FIRST={case:020} {:<20}\n", self.seed, kind.name);
            file.write_all_at(line.as_bytes(), 0).expect("write the number of the case");
        }
        let before = allocation::allocated_bytes();
        *lock(&self.current) = Some(Current { case, kind: kind.name, input: input.to_vec(), began: Instant::now() });
        allocation::reset_peak();
        let done = catch_unwind(AssertUnwindSafe(|| (kind.run)(input)));
        let took = allocation::peak_bytes().saturating_sub(before);
        *lock(&self.current) = None;
        let accepted = done.map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a message"))
        })?;
        match took > HEAP_BYTES + HEAP_BYTES_PER_BYTE * input.len() {
            true => Err(format!("{} MiB of memory for {} bytes", took >> 20, input.len())),
            false => Ok(accepted),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

/// The directory of harmful inputs.
fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/soak")
}

/// Saves an input. Returns a line for the report.
fn save(seed: u64, case: u64, kind: &str, input: &[u8], why: &str) -> String {
    let path = directory().join(format!("{kind}-{seed}-{case}"));
    let saved = std::fs::create_dir_all(directory()).and_then(|()| std::fs::write(&path, input));
    let place = saved.map_or_else(|e| format!("not saved: {e}"), |()| path.display().to_string());
    let line = format!("case {case}, {kind}: {why}; {place}");
    println!("{line}");
    line
}

/// Ends the program on a case that hangs: the case cannot be ended alone.
fn watch(seed: u64, current: Arc<Mutex<Option<Current>>>) {
    let check = move || {
        let heap = allocation::allocated_bytes();
        let current = lock(&current);
        let Some(case) = &*current else { return };
        let why = if heap > HEAP_LIMIT_BYTES {
            format!("{} MiB of memory are allocated", heap >> 20)
        } else if case.began.elapsed() > CASE_TIME {
            format!("the case has not ended after {CASE_TIME:?}")
        } else {
            return;
        };
        save(seed, case.case, case.kind, &case.input, &why);
        std::process::exit(1);
    };
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(CHECK_EVERY);
            check();
        }
    });
}
