//! The event sources: which BPF programs fit this kernel.
//!
//! ```text
//!     tracepoints mm_filemap_{get_pages,fault,map_pages}          Linux 6.11 and later
//!       └─ else fentry on filemap_read, filemap_fault, filemap_map_pages    if trampolines are permitted
//!            └─ else kprobes on the same functions                          if they are compiled in
//!                 └─ else mm_filemap_add_to_page_cache alone                cold recordings only: accesses to cached pages are unseen
//! ```

use ahead_sys::{Error, Result};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Typedef};
use std::path::Path;

/// The source of access events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The page cache's own tracepoints.
    Tracepoints,
    /// The functions with these tracepoints, through a BPF trampoline.
    Fentry,
    /// The same functions, through breakpoints.
    Kprobes,
    /// Only pages added to the page cache.
    Added,
}

/// All sources, the best first.
pub const SOURCES: [Source; 4] = [Source::Tracepoints, Source::Fentry, Source::Kprobes, Source::Added];

/// Tracepoints that every source needs.
const ALWAYS: [&str; 4] =
    ["mm_filemap_add_to_page_cache", "sched_process_fork", "sched_process_exec", "sched_process_exit"];
const BETTER: [&str; 3] = ["mm_filemap_get_pages", "mm_filemap_fault", "mm_filemap_map_pages"];
const FUNCTIONS: [&str; 3] = ["filemap_read", "filemap_fault", "filemap_map_pages"];

impl Source {
    /// The description for people: `tp_btf mm_filemap_get_pages+fault+map_pages`.
    pub fn describe(self) -> &'static str {
        match self {
            Source::Tracepoints => "tp_btf mm_filemap_get_pages+mm_filemap_fault+mm_filemap_map_pages",
            Source::Fentry => "fentry filemap_read+filemap_fault+filemap_map_pages",
            Source::Kprobes => "kprobe filemap_read+filemap_fault+filemap_map_pages",
            Source::Added => "tp_btf mm_filemap_add_to_page_cache",
        }
    }

    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Source::Tracepoints => "tracepoints",
            Source::Fentry => "fentry",
            Source::Kprobes => "kprobes",
            Source::Added => "added",
        }
    }

    /// Whether accesses to cached pages are seen.
    pub fn sees_hits(self) -> bool {
        self != Source::Added
    }

    /// The BPF programs of this source, in addition to the programs that are always loaded.
    pub(crate) fn programs(self) -> &'static [&'static str] {
        match self {
            Source::Tracepoints => &["on_get_pages", "on_fault", "on_map_pages"],
            Source::Fentry => &["enter_read", "enter_splice", "enter_fault", "enter_map_pages"],
            Source::Kprobes => &["probe_read", "probe_splice", "probe_fault", "probe_map_pages"],
            Source::Added => &[],
        }
    }
}

/// Abilities of this kernel, from its type information.
#[derive(Clone, Debug)]
pub struct Abilities {
    /// The sources whose tracepoints or functions exist, the best first. Loading shows whether they are permitted.
    pub sources: Vec<Source>,
    /// Whether `filemap_splice_read` exists (Linux 6.5); before, splice uses `filemap_read`.
    pub has_splice: bool,
}

const BTF: &str = "/sys/kernel/btf/vmlinux";

fn unsupported(why: String) -> Error {
    Error::Unsupported { what: "observing programs".into(), why }
}

fn types() -> Result<Btf<'static>> {
    if !Path::new(BTF).exists() {
        return Err(unsupported(format!("this kernel has no type information ({BTF}, CONFIG_DEBUG_INFO_BTF)")));
    }
    Btf::from_vmlinux().map_err(|e| unsupported(format!("the kernel's type information cannot be read: {e}")))
}

/// The types, tracepoints and functions of the running kernel.
pub(crate) struct KernelTypes(Btf<'static>);

impl KernelTypes {
    pub(crate) fn read() -> Result<KernelTypes> {
        types().map(KernelTypes)
    }

    /// Whether the kernel has a tracepoint of this name that BPF can use.
    pub(crate) fn has_tracepoint(&self, name: &str) -> bool {
        self.0.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}")).is_some()
    }

    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.0.type_by_name::<Func<'_>>(name).is_some()
    }
}

/// Whether the kernel has a tracepoint of this name that BPF can use.
pub(crate) fn has_tracepoint(name: &str) -> Result<bool> {
    Ok(KernelTypes::read()?.has_tracepoint(name))
}

/// Reads the kernel's type information.
pub fn abilities() -> Result<Abilities> {
    let types = KernelTypes::read()?;
    let has_tracepoint = |name: &&str| types.has_tracepoint(name);
    let has_function = |name: &&str| types.has_function(name);
    if let Some(missing) = ALWAYS.iter().find(|name| !has_tracepoint(name)) {
        return Err(unsupported(format!("this kernel has no tracepoint {missing} that BPF can use")));
    }
    let functions = FUNCTIONS.iter().all(has_function);
    let fits = |source: &Source| match source {
        Source::Tracepoints => BETTER.iter().all(has_tracepoint),
        Source::Fentry | Source::Kprobes => functions,
        Source::Added => true,
    };
    let sources = SOURCES.into_iter().filter(fits).collect();
    Ok(Abilities { sources, has_splice: types.has_function("filemap_splice_read") })
}
