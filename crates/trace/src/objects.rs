//! Loading compiled BPF programs: what every observer needs.

use ahead_kernel::{Error, Result, machine};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::AsFd;

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

/// What the name of a program ends with that is there for a second time (`bpf/twice.h`).
const SECOND: &str = "_again";

/// The first Linux whose tracepoints leave preemption on, so that their programs may be interrupted.
const INTERRUPTED_SINCE: u32 = 7;

/// Lets programs that are there twice be loaded for a second time only where that is needed, and the first is.
pub(crate) fn choose_seconds(open: &mut OpenObject) {
    let major = machine::kernel_release().split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let name = |program: &libbpf_rs::OpenProgramMut<'_>| program.name().to_string_lossy().into_owned();
    let is_wanted = |program: &libbpf_rs::OpenProgramMut<'_>| program.autoload() && major >= INTERRUPTED_SINCE;
    let firsts: HashSet<String> = open.progs_mut().filter(is_wanted).map(|program| name(&program)).collect();
    for mut program in open.progs_mut() {
        if let Some(first) = name(&program).strip_suffix(SECOND) {
            program.set_autoload(firsts.contains(first));
        }
    }
}

/// `enum` of `bpf/twice.h`.
const IS_COMPLETE: u32 = 0;
const DONE_BEFORE: u32 = 1;

/// Tells the programs that are there twice that all are attached. Gives how many had been passed over by then.
pub(crate) fn complete(object: &Object) -> Result<u64> {
    let mut loaded = object.progs().filter(|program| program.autoload());
    if loaded.any(|program| program.name().to_string_lossy().ends_with(SECOND)) {
        map(object, "twice")?
            .update(&IS_COMPLETE.to_ne_bytes(), &1u64.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| bpf_error("begin to observe", e))?;
    }
    passed_over(object)
}

/// How often the kernel passed one of an object's programs over, since the same one had begun on that processor and not ended
/// (`recursion_misses`). Of two that do the same, only the second counts.
pub(crate) fn passed_over(object: &Object) -> Result<u64> {
    let loaded: Vec<_> = object.progs().filter(|program| program.autoload()).collect();
    let names: HashSet<&OsStr> = loaded.iter().map(|program| program.name()).collect();
    let has_second = |program: &&libbpf_rs::Program<'_>| {
        let mut second = program.name().to_os_string();
        second.push(SECOND);
        names.contains(second.as_os_str())
    };
    let id = |program: &libbpf_rs::Program<'_>| libbpf_rs::Program::id_from_fd(program.as_fd());
    let ours: std::result::Result<HashSet<u32>, _> = loaded.iter().filter(|one| !has_second(one)).map(id).collect();
    let ours = ours.map_err(|e| bpf_error("look at BPF programs", e))?;
    Ok(ProgInfoIter::default().filter(|info| ours.contains(&info.id)).map(|info| info.recursion_misses).sum())
}

/// How many events were lost since `complete` gave `before`: those of seconds that were passed over, without those that their firsts
/// had done.
pub(crate) fn lost_since(object: &Object, before: u64) -> Result<u64> {
    let failed = |e| bpf_error("read counters", e);
    let passed_over = passed_over(object)?.saturating_sub(before);
    let number = |bytes: Vec<u8>| bytes.try_into().map_or(0, u64::from_ne_bytes);
    let done = map(object, "twice")?.lookup(&DONE_BEFORE.to_ne_bytes(), MapFlags::ANY).map_err(failed)?.map_or(0, number);
    let begun = map(object, "begun")?;
    let bits = |key: Vec<u8>| begun.lookup(&key, MapFlags::ANY).ok().flatten().and_then(|bits| bits.try_into().ok());
    let left: u64 = begun.keys().filter_map(bits).map(|bits| u64::from(u32::from_ne_bytes(bits).count_ones())).sum();
    tracing::debug!("{passed_over} programs passed over, {done} and {left} of them not needed");
    Ok(passed_over.saturating_sub(done + left))
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
