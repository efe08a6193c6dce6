//! Loading compiled BPF programs: what every observer needs.

use ahead_kernel::{Error, Result};
use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, OpenObject, PrintLevel};
use std::ffi::OsStr;

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

/// Loads an object, and attaches all its programs.
pub(crate) fn attach_all(open: OpenObject) -> Result<(Object, Vec<Link>)> {
    let object = open.load().map_err(|e| bpf_error("load BPF programs", e))?;
    let attach = |program: libbpf_rs::ProgramMut<'_>| {
        let what = format!("attach {}", program.name().to_string_lossy());
        program.attach().map_err(|e| bpf_error(&what, e))
    };
    let links = object.progs_mut().map(attach).collect::<Result<_>>()?;
    Ok((object, links))
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
