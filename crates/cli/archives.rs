//! For build scripts: libraries that are linked statically where their archives are installed and complete, so that a program reads fewer files when
//! it starts, and runs where the libraries are missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Archives, and the names of the libraries that they replace: two of libbpf, and the unwinder, which the standard library names gcc_s.
const ARCHIVES: [(&str, &str); 3] = [("libelf.a", "libelf.a"), ("libz.a", "libz.a"), ("libgcc_eh.a", "libgcc_s.a")];

/// Links the program of this package with them. `out`: the directory of this build.
pub fn link_statically(out: &Path) {
    println!("cargo:rustc-link-search=native={}", out.display());
    for (name, library) in ARCHIVES {
        let link = out.join(library);
        let _ = fs::remove_file(&link);
        if let Some(archive) = archive(name).filter(|archive| name != "libelf.a" || is_complete(out, archive)) {
            std::os::unix::fs::symlink(archive, link).expect("the directory of this build is writable");
        }
    }
}

/// Where the C compiler finds this archive.
fn archive(library: &str) -> Option<PathBuf> {
    let printed = Command::new("cc").arg(format!("-print-file-name={library}")).output().ok()?.stdout;
    let path = PathBuf::from(String::from_utf8(printed).ok()?.trim());
    path.is_absolute().then(|| fs::canonicalize(path).ok()).flatten()
}

/// Whether a program with this archive and zlib links. The libelf.a of Debian 13 does not: it calls functions of a library of elfutils that no
/// package has, and those of zstd. Then libelf is a shared library.
fn is_complete(out: &Path, archive: &Path) -> bool {
    let source = out.join("complete.c");
    if fs::write(&source, "int main(void) { return 0; }\n").is_err() {
        return false;
    }
    let mut trial = Command::new("cc");
    trial.arg(&source).arg("-o").arg(out.join("complete")).arg("-Wl,--whole-archive").arg(archive);
    trial.args(["-Wl,--no-whole-archive", "-lz"]);
    trial.output().is_ok_and(|done| done.status.success())
}
