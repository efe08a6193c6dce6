//! Builds below `make`, and in a directory with a space: `.cargo/config.toml`. A build script that starts make as that of libbpf-sys does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const BUILD_SCRIPT: &str = r#"fn main() {
    let out = std::env::var("OUT_DIR").unwrap();
    let mut make = std::process::Command::new("make");
    make.args(["-f", "inner.mk"]).env("DESTDIR", &out).env("OBJDIR", format!("{out}/obj"));
    assert!(make.status().unwrap().success());
}
"#;

/// OBJDIR is in names of targets, which must not contain a space.
const INNER: &str = "OBJDIR ?= .\n\
    install: $(OBJDIR)/made\n\tcp '$(OBJDIR)/made' '$(DESTDIR)/installed'\n\
    $(OBJDIR)/made:\n\tmkdir -p $(OBJDIR) && touch $@\n";

/// Regressions: `make install DESTDIR=DIR` on a fresh clone installed libbpf.a below DIR, where the linker did not find it; and without SHELL
/// in the environment, as in a container, make had no shell for the temporary directory.
#[test]
fn variables_of_an_outer_make_and_spaces_do_not_reach_the_make_of_a_build_script() {
    let home = tempfile::tempdir().unwrap();
    let package = home.path().join("a b");
    fs::create_dir_all(package.join("src")).unwrap();
    let manifest = "[package]\nname = \"outer\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    let files =
        [("Cargo.toml", manifest), ("build.rs", BUILD_SCRIPT), ("inner.mk", INNER), ("src/main.rs", "fn main() {}\n")];
    for (name, text) in files {
        fs::write(package.join(name), text).unwrap();
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::write(package.join("outer.mk"), "install:\n\t\"$$CARGO\" --config \"$$CONFIG\" build --offline --quiet\n")
        .unwrap();
    let mut make = Command::new("make");
    make.args(["-f", "outer.mk", "DESTDIR=/nonexistent/elsewhere"]).current_dir(&package);
    make.env("CARGO", std::env::var_os("CARGO").unwrap()).env("CONFIG", root.join(".cargo/config.toml"));
    make.env("TMPDIR", home.path()).env_remove("CARGO_TARGET_DIR");
    for shell in [None, Some("/bin/false")] {
        match shell {
            Some(shell) => make.env("SHELL", shell),
            None => make.env_remove("SHELL"),
        };
        let done = make.output().unwrap();
        assert!(done.status.success(), "SHELL {shell:?}: {done:?}");
        let target = package.join("target");
        let builds = fs::read_dir(target.join("debug/build")).unwrap();
        let installed: Vec<PathBuf> = builds.map(|entry| entry.unwrap().path().join("out/installed")).collect();
        assert!(installed.iter().any(|path| path.exists()), "{installed:?}");
        fs::remove_dir_all(target).unwrap();
    }
}
