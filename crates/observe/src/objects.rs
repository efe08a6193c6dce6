//! Loading of compiled BPF programs, for all observers.

use ahead_sys::{Error, Result, machine};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel};
use miniz_oxide::inflate::decompress_slice_iter_to_slice;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};

/// The alignment that libbpf requires for ELF files.
const ALIGNMENT: usize = 8;

/// A compiled object as `build.rs` stores it: the size in 4 bytes, little-endian, then the object compressed with deflate.
#[derive(Debug)]
pub(crate) struct Compiled(pub &'static [u8]);

impl Compiled {
    /// Calls `open` with the object. libbpf copies what it keeps of it.
    fn uncompressed<T>(&self, open: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let damaged =
            || Error::io("decompress the BPF object", std::io::Error::other("it is damaged; install ahead again"));
        let (size, compressed) = self.0.split_first_chunk().ok_or_else(damaged)?;
        let size = u32::from_le_bytes(*size) as usize;
        let mut space = vec![0; size + ALIGNMENT];
        let start = space.as_ptr().align_offset(ALIGNMENT);
        let object = &mut space[start..start + size];
        match decompress_slice_iter_to_slice(object, std::iter::once(compressed), false, true) {
            Ok(written) if written == size => Ok(open(object)),
            _ => Err(damaged()),
        }
    }
}

/// Opens a compiled object.
pub(crate) fn open(name: &str, compiled: &Compiled) -> Result<OpenObject> {
    quiet_libbpf();
    compiled
        .uncompressed(|object| ObjectBuilder::default().name(name).and_then(|builder| builder.open_memory(object)))?
        .map_err(|e| bpf_error("open the BPF object", e))
}

/// Loads an object, and attaches all programs with autoload.
pub(crate) fn attach_all(open: OpenObject) -> Result<(Object, Vec<Link>)> {
    let object = open.load().map_err(|e| bpf_error("load BPF programs", e))?;
    let attach = |program: libbpf_rs::ProgramMut<'_>| {
        let what = format!("attach {}", program.name().to_string_lossy());
        program.attach().map_err(|e| bpf_error(&what, e))
    };
    let links = object.progs_mut().filter(|program| program.autoload()).map(attach).collect::<Result<_>>()?;
    Ok((object, links))
}

/// Suffixes of the second and last copies of a program (`bpf/triple_attach.h`).
const SECOND: &str = "_second";
const LAST: &str = "_last";

/// The first Linux whose tracepoints keep preemption enabled, so that BPF programs may be interrupted (commit a46023d5616e).
const INTERRUPTED_SINCE: u32 = 7;

/// `enum` of `bpf/triple_attach.h`.
const IS_COMPLETE: u32 = 0;
const DONE_BEFORE: u32 = 1;
const NOT_NOTED: u32 = 2;

/// Whether this kernel may interrupt programs, so that each is attached three times.
pub(crate) fn has_copies() -> bool {
    let major = machine::kernel_release().split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    major >= INTERRUPTED_SINCE
}

/// Enables the second and last copies of programs if this kernel needs them and the first copy is enabled.
pub(crate) fn choose_copies(open: &mut OpenObject) {
    let name = |program: &libbpf_rs::OpenProgramMut<'_>| program.name().to_string_lossy().into_owned();
    let has_copies = has_copies();
    let is_wanted = |program: &libbpf_rs::OpenProgramMut<'_>| program.autoload() && has_copies;
    let firsts: HashSet<String> = open.progs_mut().filter(is_wanted).map(|program| name(&program)).collect();
    for mut program in open.progs_mut() {
        let name = name(&program);
        if let Some(first) = name.strip_suffix(SECOND).or(name.strip_suffix(LAST)) {
            program.set_autoload(firsts.contains(first));
        }
    }
}

/// Starts counting in programs with several copies, once all copies are attached. Returns the number of missed runs before.
pub(crate) fn activate(object: &Object) -> Result<u64> {
    let before = passed_over(object)?;
    let mut loaded = object.progs().filter(|program| program.autoload());
    if loaded.any(|program| program.name().to_string_lossy().ends_with(LAST)) {
        map(object, "triple_attach")?
            .update(&IS_COMPLETE.to_ne_bytes(), &1u64.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| bpf_error("start to observe", e))?;
    }
    Ok(before)
}

/// How often the kernel did not run a program because the same one was interrupted on that processor (`recursion_misses`, Linux
/// 5.12). For programs with several copies, only the last copy counts.
pub(crate) fn passed_over(object: &Object) -> Result<u64> {
    // A missed run of these makes the timeline less exact, and loses no access.
    let is_of_timeline = |name: &OsStr| name == "on_switch" || name == "on_waking";
    let loaded = object.progs().filter(|program| program.autoload() && !is_of_timeline(program.name()));
    let loaded: Vec<_> = loaded.collect();
    let name = |program: &libbpf_rs::Program<'_>| program.name().to_string_lossy().into_owned();
    let names: HashSet<String> = loaded.iter().map(name).collect();
    let is_last = |program: &&libbpf_rs::Program<'_>| {
        let name = name(program);
        !names.contains(&format!("{}{LAST}", name.strip_suffix(SECOND).unwrap_or(&name)))
    };
    loaded.iter().filter(is_last).map(|program| misses_of(program.as_fd().as_raw_fd())).sum()
}

/// The counter in /proc of an open program. The system call that lists programs needs more privilege than loading them.
fn misses_of(program: i32) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{program}");
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io(path.clone(), e))?;
    let number = text.lines().find_map(|line| line.strip_prefix("recursion_misses:"));
    let missing = || Error::io(path, std::io::Error::other("no recursion_misses"));
    number.and_then(|number| number.trim().parse().ok()).ok_or_else(missing)
}

/// Number of events that were lost, or sent twice, since `activate` returned `before`, in all threads, followed or not. It is
/// the number of missed runs of the last copies, without runs whose work another copy had done. Must be called while all copies
/// are attached: without the first, the last does not know whether work is left. A thread that is between two copies can hide
/// one event.
pub(crate) fn lost_since(object: &Object, before: u64) -> Result<u64> {
    let number = |key| number(object, "triple_attach", key);
    if passed_over(object)? <= before {
        return number(NOT_NOTED);
    }
    // Counted in this order, events in between count as lost.
    let not_needed = number(DONE_BEFORE)? + unreported_done_before(object)? + reads_without_last(object)?;
    let passed_over = passed_over(object)?.saturating_sub(before);
    Ok(passed_over.saturating_sub(not_needed) + number(NOT_NOTED)?)
}

/// The number at a key of a table; 0: there is none.
pub(crate) fn number(object: &Object, table: &str, key: u32) -> Result<u64> {
    let bytes = map(object, table)?.lookup(&key.to_ne_bytes(), MapFlags::ANY);
    let bytes = bytes.map_err(|e| bpf_error("read counters", e))?.unwrap_or_default();
    Ok(bytes.try_into().map_or(0, u64::from_ne_bytes))
}

/// Sets the numbers of the system calls in a table, with their meaning.
pub(crate) fn fill_calls<V: AsRef<[u8]>>(
    object: &Object,
    table: &str,
    calls: impl IntoIterator<Item = (u32, V)>,
) -> Result<()> {
    let table = map(object, table)?;
    let set = |number: u32, meaning: V| table.update(&number.to_ne_bytes(), meaning.as_ref(), MapFlags::ANY);
    let set = calls.into_iter().try_for_each(|(number, meaning)| set(number, meaning));
    set.map_err(|e| bpf_error("set up the table of system calls", e))
}

/// Number of missed runs of last copies whose work was done, in threads that have not run the first copy since.
fn unreported_done_before(object: &Object) -> Result<u64> {
    let begun = map(object, "begun")?;
    let bits = |key: Vec<u8>| {
        let bits = begun.lookup(&key, MapFlags::ANY).ok().flatten()?.try_into().ok()?;
        Some((key, u32::from_ne_bytes(bits).count_ones()))
    };
    // The iteration starts again when it meets a thread that ends.
    let threads: HashMap<Vec<u8>, u32> = begun.keys().filter_map(bits).collect();
    Ok(threads.into_values().map(u64::from).sum())
}

/// Number of missed runs of last copies that had nothing to do, because the first copy had found the read's pages in the cache of known
/// pages (`bpf/known.h`).
fn reads_without_last(object: &Object) -> Result<u64> {
    let Some(known) = object.maps().find(|map| map.name() == OsStr::new("known")) else { return Ok(0) };
    let values = known.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
    let values = values.map_err(|e| bpf_error("read counters", e))?.unwrap_or_default();
    // At the end of the structure: begun, ended.
    let number = |bytes: &[u8], from_end: usize| -> u64 {
        let start = bytes.len().saturating_sub(8 * from_end);
        bytes.get(start..start + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
    };
    // A thread may run its copies on two processors.
    let total = |from_end| values.iter().map(|bytes| number(bytes, from_end)).fold(0, u64::wrapping_add);
    Ok(total(2).saturating_sub(total(1)))
}

/// A map by its name.
pub(crate) fn map<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::Map<'a>> {
    let found = object.maps().find(|map| map.name() == OsStr::new(name));
    found.ok_or_else(|| Error::io(format!("find the BPF map {name}"), std::io::Error::other("missing")))
}

/// Sends messages of libbpf to our own log.
fn quiet_libbpf() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, |level, text| match level {
        PrintLevel::Debug => tracing::trace!("{}", text.trim_end()),
        _ => tracing::debug!("{}", text.trim_end()),
    })));
}

/// Converts an error of libbpf.
pub(crate) fn bpf_error(what: &str, error: libbpf_rs::Error) -> Error {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => Error::io(what, std::io::Error::from_raw_os_error(libc::EPERM)),
        _ => Error::io(what, std::io::Error::other(format!("{error:#}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ahead.bpf.deflate"));

    #[test]
    fn uncompressed_object_is_the_compiled_one_and_aligned() {
        let compiled = include_bytes!(concat!(env!("OUT_DIR"), "/ahead.bpf.o"));
        let check = |object: &[u8]| assert!(object == compiled && object.as_ptr().addr().is_multiple_of(ALIGNMENT));
        Compiled(COMPRESSED).uncompressed(check).unwrap();
        assert!(COMPRESSED.len() < compiled.len() / 3, "{} of {}", COMPRESSED.len(), compiled.len());
    }

    #[test]
    fn damaged_object_is_an_error() {
        for damaged in [&COMPRESSED[..2], &COMPRESSED[..COMPRESSED.len() / 2], &[9, 0, 0, 0, 7]] {
            let error = open("ahead", &Compiled(damaged)).unwrap_err().to_string();
            assert!(error.contains("install ahead again"), "{error}");
        }
    }
}
