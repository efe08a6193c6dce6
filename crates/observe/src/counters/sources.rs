//! The programs that fit this kernel, and what cannot be seen without the others. [`CounterOptions::source`] selects one source of decisions.
//!
//! ```text
//!     decisions   tracepoints readahead:*                       Linux 6.18 and later
//!                   └─ else fentry on the same functions        if trampolines are permitted
//!                        └─ else kprobes                        if they are compiled in
//!                             └─ else nothing
//!     accesses    tracepoints mm_filemap_{get_pages,fault,map_pages}    Linux 6.11 and later
//!                   └─ else nothing: no hits, and used pages only as far as decisions show them
//! ```

use super::Counters;
use super::types::{CounterOptions, DecisionSource, Detail, Sources};
use crate::source::KernelTypes;
use ahead_sys::{Error, Result};

/// All sources, the best first.
const SOURCES: [DecisionSource; 4] =
    [DecisionSource::Tracepoints, DecisionSource::Fentry, DecisionSource::Kprobes, DecisionSource::Missing];

/// Tracepoints of read-ahead, and the functions that contain them.
const READAHEAD: [&str; 4] =
    ["page_cache_sync_ra", "page_cache_async_ra", "page_cache_ra_order", "page_cache_ra_unbounded"];
const FAULT: &str = "mm_filemap_fault";
const FAULT_FUNCTION: &str = "filemap_fault";
const ACCESSES: [&str; 3] = ["mm_filemap_get_pages", FAULT, "mm_filemap_map_pages"];
/// They report the address of a fault. Not on every architecture.
const ADDRESSES: [&str; 2] = ["page_fault_user", "page_fault_kernel"];

impl DecisionSource {
    fn programs(self) -> &'static [&'static str] {
        match self {
            DecisionSource::Tracepoints => &["on_sync", "on_async", "on_order", "on_unbounded"],
            DecisionSource::Fentry => &["enter_sync", "enter_async", "enter_order", "enter_unbounded"],
            DecisionSource::Kprobes => &["probe_sync", "probe_async", "probe_order", "probe_unbounded"],
            DecisionSource::Missing => &[],
        }
    }
}

/// The programs to load, and what they show.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) sources: Sources,
    programs: Vec<&'static str>,
}

impl Plan {
    pub(super) fn has(&self, program: &str) -> bool {
        self.programs.contains(&program)
    }

    fn new(options: &CounterOptions, source: DecisionSource, kernel: &Kernel) -> Plan {
        let hits = options.detail != Detail::Decisions && kernel.accesses;
        let mut programs = vec!["on_switch", "on_deleted"];
        programs.extend(source.programs());
        match source {
            _ if hits => programs.extend(["on_get_pages", "on_map_pages", "on_accessed_fault", "on_added"]),
            DecisionSource::Missing => {}
            _ if kernel.fault => programs.push("on_fault"),
            DecisionSource::Kprobes => programs.push("probe_fault"),
            _ => programs.push("enter_fault"),
        }
        if hits && kernel.addresses {
            programs.extend(["on_user_fault", "on_kernel_fault"]);
        }
        let mut missing = Vec::new();
        if options.detail != Detail::Decisions && !hits {
            missing.push("reads of cached pages and use of pages: the kernel has no tracepoint mm_filemap_get_pages (Linux 6.11)");
        }
        if hits && !kernel.addresses {
            missing.push("the page of a fault that maps cached pages: the kernel has no tracepoint page_fault_user");
        }
        missing.push("faults of mappings with MADV_RANDOM, and mapped pages after their first access");
        missing.push("waits of reads with io_uring: no thread sleeps for them");
        let missing = missing.into_iter().map(String::from).collect();
        Plan { sources: Sources { decisions: source, hits, missing }, programs }
    }
}

/// What the type information shows.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    readahead: bool,
    readahead_functions: bool,
    fault: bool,
    fault_function: bool,
    accesses: bool,
    addresses: bool,
}

impl Kernel {
    fn read() -> Result<Kernel> {
        let types = KernelTypes::read()?;
        Ok(Kernel {
            readahead: READAHEAD.iter().all(|name| types.has_tracepoint(name)),
            readahead_functions: READAHEAD.iter().all(|name| types.has_function(name)),
            fault: types.has_tracepoint(FAULT),
            fault_function: types.has_function(FAULT_FUNCTION),
            accesses: ACCESSES.iter().all(|name| types.has_tracepoint(name)),
            addresses: ADDRESSES.iter().all(|name| types.has_tracepoint(name)),
        })
    }

    fn fits(&self, source: DecisionSource) -> bool {
        self.lacks(source).is_none()
    }

    /// What a source needs and the kernel does not have.
    fn lacks(&self, source: DecisionSource) -> Option<&'static str> {
        let (has, lacks) = match source {
            DecisionSource::Tracepoints => (
                self.readahead && self.fault,
                "the kernel has no tracepoints readahead:* (Linux 6.18) that BPF can use",
            ),
            DecisionSource::Fentry | DecisionSource::Kprobes => (
                self.readahead_functions && (self.fault || self.fault_function),
                "the kernel has no function page_cache_sync_ra, page_cache_async_ra, page_cache_ra_order, \
                 page_cache_ra_unbounded or filemap_fault that BPF can probe",
            ),
            DecisionSource::Missing => (true, ""),
        };
        (!has).then_some(lacks)
    }
}

fn unsupported(why: String) -> Error {
    Error::Unsupported { what: "observing read-ahead".into(), why }
}

/// Starts with the source that was chosen, otherwise with the best one that works. What was refused is added to what cannot be seen.
pub(super) fn start(options: &CounterOptions, attach: impl Fn(&Plan) -> Result<Counters>) -> Result<Counters> {
    let kernel = Kernel::read()?;
    if let Some(source) = options.source {
        return start_by(source, options, &kernel, attach);
    }
    let mut refused = Vec::new();
    for source in SOURCES.into_iter().filter(|source| kernel.fits(*source)) {
        let mut plan = Plan::new(options, source, &kernel);
        if source == DecisionSource::Missing {
            let why =
                if refused.is_empty() { "the kernel has none of their functions".into() } else { refused.join("; ") };
            plan.sources.missing.insert(0, format!("decisions of read-ahead: {why}"));
        }
        match attach(&plan) {
            Ok(counters) => return Ok(counters),
            Err(error) => {
                tracing::debug!("{source:?}: {error}");
                refused.push(format!("{source:?}: {error}"));
            }
        }
    }
    Err(unsupported(refused.join("; ")))
}

fn start_by(
    source: DecisionSource,
    options: &CounterOptions,
    kernel: &Kernel,
    attach: impl Fn(&Plan) -> Result<Counters>,
) -> Result<Counters> {
    let name = source.name();
    if let Some(lacks) = kernel.lacks(source) {
        return Err(unsupported(format!("{name}: {lacks}")));
    }
    attach(&Plan::new(options, source, kernel)).map_err(|error| unsupported(format!("{name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Kernel = Kernel {
        readahead: true,
        readahead_functions: true,
        fault: true,
        fault_function: true,
        accesses: true,
        addresses: true,
    };

    fn options(detail: Detail) -> CounterOptions {
        CounterOptions { detail, sends: true, own_pid: 1, source: None }
    }

    #[test]
    fn no_program_of_a_cached_read_is_loaded_for_decisions() {
        for source in SOURCES {
            let plan = Plan::new(&options(Detail::Decisions), source, &NEW);
            for program in ["on_get_pages", "on_map_pages", "on_user_fault", "on_added"] {
                assert!(!plan.has(program), "{source:?} {program}");
            }
            assert!(!plan.sources.hits);
        }
    }

    #[test]
    fn kernel_6_1_has_decisions_by_functions_and_no_hits() {
        let old = Kernel { readahead: false, fault: false, accesses: false, ..NEW };
        assert!(!old.fits(DecisionSource::Tracepoints) && old.fits(DecisionSource::Fentry));
        for (source, fault) in [(DecisionSource::Fentry, "enter_fault"), (DecisionSource::Kprobes, "probe_fault")] {
            let plan = Plan::new(&options(Detail::Hits), source, &old);
            assert!(plan.has(fault) && !plan.has("on_fault") && !plan.has("on_get_pages"), "{plan:?}");
            assert!(!plan.sources.hits && plan.sources.missing[0].contains("mm_filemap_get_pages"));
        }
    }

    #[test]
    fn kernel_6_12_has_hits_by_tracepoints_beside_decisions_by_functions() {
        let middle = Kernel { readahead: false, ..NEW };
        let plan = Plan::new(&options(Detail::SampledHits(64)), DecisionSource::Fentry, &middle);
        assert!(plan.has("enter_sync") && plan.has("on_get_pages") && plan.has("on_accessed_fault"));
        assert!(!plan.has("on_fault") && !plan.has("enter_fault") && plan.sources.hits);
        let without = Plan::new(&options(Detail::Decisions), DecisionSource::Kprobes, &middle);
        assert!(without.has("on_fault") && !without.has("probe_fault"));
    }

    #[test]
    fn chosen_source_that_the_kernel_lacks_is_not_supported() {
        let old = Kernel { readahead: false, readahead_functions: false, ..NEW };
        for (source, expected) in [
            (DecisionSource::Tracepoints, "tracepoints: the kernel has no tracepoints readahead:*"),
            (DecisionSource::Fentry, "fentry: the kernel has no function page_cache_sync_ra"),
            (DecisionSource::Kprobes, "kprobes: the kernel has no function page_cache_sync_ra"),
        ] {
            let attach = |_: &Plan| panic!("nothing is attached");
            match start_by(source, &options(Detail::Hits), &old, attach) {
                Err(Error::Unsupported { why, .. }) => assert!(why.starts_with(expected), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn chosen_source_that_is_refused_is_replaced_by_no_other() {
        for chosen in DecisionSource::NAMED {
            let attach = |plan: &Plan| {
                assert_eq!(plan.sources.decisions, chosen);
                Err(Error::io("attach", std::io::Error::from_raw_os_error(libc::EOPNOTSUPP)))
            };
            let error = start_by(chosen, &options(Detail::Hits), &NEW, attach).unwrap_err();
            assert!(matches!(&error, Error::Unsupported { why, .. } if why.starts_with(chosen.name())), "{error}");
        }
    }

    #[test]
    fn faults_without_addresses_are_reported() {
        let plan = Plan::new(&options(Detail::Hits), DecisionSource::Tracepoints, &Kernel { addresses: false, ..NEW });
        assert!(!plan.has("on_user_fault") && plan.sources.missing[0].contains("page_fault_user"));
    }
}
