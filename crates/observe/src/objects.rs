//! Loading compiled BPF programs: what every observer needs.

use ahead_sys::{Error, Result, machine};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};

/// A compiled object, aligned as libbpf wants an ELF file.
#[derive(Debug)]
#[repr(C, align(8))]
pub(crate) struct Compiled<T: ?Sized>(pub T);

/// Opens a compiled object, to be set up and loaded.
pub(crate) fn open(name: &str, compiled: &Compiled<[u8]>) -> Result<OpenObject> {
    quiet_libbpf();
    ObjectBuilder::default()
        .name(name)
        .and_then(|builder| builder.open_memory(&compiled.0))
        .map_err(|e| bpf_error("open the BPF object", e))
}

/// Loads an object, and attaches all its programs that are to be loaded.
pub(crate) fn attach_all(open: OpenObject) -> Result<(Object, Vec<Link>)> {
    let object = open.load().map_err(|e| bpf_error("load BPF programs", e))?;
    let attach = |program: libbpf_rs::ProgramMut<'_>| {
        let what = format!("attach {}", program.name().to_string_lossy());
        program.attach().map_err(|e| bpf_error(&what, e))
    };
    let links = object.progs_mut().filter(|program| program.autoload()).map(attach).collect::<Result<_>>()?;
    Ok((object, links))
}

/// What the names of programs end with that are there for a second and for the last time (`bpf/thrice.h`).
const SECOND: &str = "_second";
const LAST: &str = "_last";

/// The first Linux whose tracepoints leave preemption on, so that their programs may be interrupted (commit a46023d5616e).
const INTERRUPTED_SINCE: u32 = 7;

/// `enum` of `bpf/thrice.h`.
const IS_COMPLETE: u32 = 0;
const DONE_BEFORE: u32 = 1;
const NOT_NOTED: u32 = 2;

/// Of the programs that are there three times, the second and the last are loaded where they are needed and the first is.
pub(crate) fn choose_turns(open: &mut OpenObject) {
    let major = machine::kernel_release().split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let name = |program: &libbpf_rs::OpenProgramMut<'_>| program.name().to_string_lossy().into_owned();
    let is_wanted = |program: &libbpf_rs::OpenProgramMut<'_>| program.autoload() && major >= INTERRUPTED_SINCE;
    let firsts: HashSet<String> = open.progs_mut().filter(is_wanted).map(|program| name(&program)).collect();
    for mut program in open.progs_mut() {
        let name = name(&program);
        if let Some(first) = name.strip_suffix(SECOND).or(name.strip_suffix(LAST)) {
            program.set_autoload(firsts.contains(first));
        }
    }
}

/// Tells the programs that are there three times that all are attached. Gives how many had been passed over by then.
pub(crate) fn complete(object: &Object) -> Result<u64> {
    let before = passed_over(object)?;
    let mut loaded = object.progs().filter(|program| program.autoload());
    if loaded.any(|program| program.name().to_string_lossy().ends_with(LAST)) {
        map(object, "thrice")?
            .update(&IS_COMPLETE.to_ne_bytes(), &1u64.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| bpf_error("begin to observe", e))?;
    }
    Ok(before)
}

/// How often the kernel passed one of an object's programs over, since the same one had begun on that processor and not ended
/// (`recursion_misses`, Linux 5.12). Of those that do the same, only the last counts.
pub(crate) fn passed_over(object: &Object) -> Result<u64> {
    let loaded: Vec<_> = object.progs().filter(|program| program.autoload()).collect();
    let name = |program: &libbpf_rs::Program<'_>| program.name().to_string_lossy().into_owned();
    let names: HashSet<String> = loaded.iter().map(name).collect();
    let is_last = |program: &&libbpf_rs::Program<'_>| {
        let name = name(program);
        !names.contains(&format!("{}{LAST}", name.strip_suffix(SECOND).unwrap_or(&name)))
    };
    loaded.iter().filter(is_last).map(|program| misses_of(program.as_fd().as_raw_fd())).sum()
}

/// What /proc tells of a program, to whoever has it open: the call that lists programs takes more privilege than loading them.
fn misses_of(program: i32) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{program}");
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io(path.clone(), e))?;
    let number = text.lines().find_map(|line| line.strip_prefix("recursion_misses:"));
    let missing = || Error::io(path, std::io::Error::other("no recursion_misses"));
    number.and_then(|number| number.trim().parse().ok()).ok_or_else(missing)
}

/// How many events were lost since `complete` gave `before`, or sent twice: those for which the last program was passed over, without
/// those that another had done; of all threads, whether they are followed or not. While all are attached: without the first, the last
/// does not know what there is to do. A thread that is just between the two can hide one.
pub(crate) fn lost_since(object: &Object, before: u64) -> Result<u64> {
    let number = |key: u32| -> Result<u64> {
        let bytes = map(object, "thrice")?.lookup(&key.to_ne_bytes(), MapFlags::ANY);
        let bytes = bytes.map_err(|e| bpf_error("read counters", e))?.unwrap_or_default();
        Ok(bytes.try_into().map_or(0, u64::from_ne_bytes))
    };
    if passed_over(object)? <= before {
        return number(NOT_NOTED);
    }
    // What comes meanwhile counts as lost rather than not.
    let not_needed = number(DONE_BEFORE)? + not_needed_yet_unsaid(object)?;
    let passed_over = passed_over(object)?.saturating_sub(before);
    Ok(passed_over.saturating_sub(not_needed) + number(NOT_NOTED)?)
}

/// How many programs' last ones were passed over and not needed, in threads that have not come to the first one since.
fn not_needed_yet_unsaid(object: &Object) -> Result<u64> {
    let begun = map(object, "begun")?;
    let bits = |key: Vec<u8>| {
        let bits = begun.lookup(&key, MapFlags::ANY).ok().flatten()?.try_into().ok()?;
        Some((key, u32::from_ne_bytes(bits).count_ones()))
    };
    // A walk that meets a thread's end begins anew.
    let threads: HashMap<Vec<u8>, u32> = begun.keys().filter_map(bits).collect();
    Ok(threads.into_values().map(u64::from).sum())
}

/// A map by its name.
pub(crate) fn map<'a>(object: &'a Object, name: &str) -> Result<libbpf_rs::Map<'a>> {
    let found = object.maps().find(|map| map.name() == OsStr::new(name));
    found.ok_or_else(|| Error::io(format!("find the BPF map {name}"), std::io::Error::other("missing")))
}

/// What libbpf says goes where our own diagnostics go.
fn quiet_libbpf() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, |level, text| match level {
        PrintLevel::Debug => tracing::trace!("{}", text.trim_end()),
        _ => tracing::debug!("{}", text.trim_end()),
    })));
}

/// An error of libbpf as one of ours.
pub(crate) fn bpf_error(what: &str, error: libbpf_rs::Error) -> Error {
    match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => Error::io(what, std::io::Error::from_raw_os_error(libc::EPERM)),
        _ => Error::io(what, std::io::Error::other(format!("{error:#}"))),
    }
}
