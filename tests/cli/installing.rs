//! `make install` with PREFIX and DESTDIR: `scripts/install` and `scripts/install-lib`, with small files in place of the programs.

use ahead_tests::rig::prelude::*;
use std::os::unix::fs::symlink;

const BUILT: [&str; 6] = ["ahead", "ahead-lab", "ahead-steer", "aheadd", "libahead_capi.so", "libahead_capi.a"];

struct Tree {
    _home: tempfile::TempDir,
    built: PathBuf,
    destination: PathBuf,
    outside: PathBuf,
}

impl Tree {
    fn new() -> Tree {
        let home = tempfile::tempdir().unwrap();
        let [from, destination, outside] = make_directories(home.path(), ["built", "a b", "outside"]);
        for name in BUILT {
            fs::write(from.join(name), "new").unwrap();
        }
        // The installation runs it, for man pages and completions.
        write_script(&from.join("ahead"), &format!("exec '{}' \"$@\"", built("ahead").display()));
        Tree { _home: home, built: from, destination, outside }
    }

    fn script(&self, name: &str, prefix: &str) -> Program {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let script = program(root.join("scripts").join(name)).env("DESTDIR", &self.destination);
        script.env("PREFIX", prefix).env_remove("LIBDIR")
    }

    fn install(&self, name: &str, prefix: &str) -> Done {
        self.script(name, prefix).arg("--from").arg(&self.built).done()
    }

    fn installed(&self, path: &str) -> PathBuf {
        self.destination.join(path)
    }
}

fn text(done: &Done) -> String {
    format!("{}{}", done.out, done.err)
}

/// Regression: the unit was installed below any PREFIX, also where systemd does not look for units.
#[test]
fn units_name_the_installed_programs_and_are_left_out_where_systemd_does_not_look() {
    let tree = Tree::new();
    let unit = |prefix: &str| tree.installed(&format!("{prefix}/lib/systemd/system/ahead-steer.service"));
    for prefix in ["/usr/local", "/usr", "/usr/local/"] {
        let done = tree.install("install", prefix);
        assert!(done.status.success() && !text(&done).contains("left out"), "{done:?}");
        let prefix = prefix.trim_end_matches('/');
        let unit = fs::read_to_string(unit(&prefix[1..])).unwrap();
        assert!(unit.contains(&format!("\nExecStart={prefix}/bin/ahead steer")) && !unit.contains("@AHEAD@"), "{unit}");
        assert!(tree.installed(&format!("{}/bin/ahead-steer", &prefix[1..])).is_file());
        let service = tree.installed(&format!("{}/lib/systemd/system/aheadd.service", &prefix[1..]));
        assert!(fs::read_to_string(service).unwrap().contains(&format!("\nExecStart={prefix}/bin/aheadd\n")));
        assert!(tree.installed(&format!("{}/share/man/man8/aheadd.8", &prefix[1..])).is_file());
    }
    let done = tree.install("install", "/opt/ahead");
    assert!(done.status.success() && text(&done).contains("left out: the units of the launch service"), "{done:?}");
    assert!(!unit("opt/ahead").exists() && tree.installed("opt/ahead/bin/ahead-steer").is_file());
    let removed = tree.script("install", "/usr/local").arg("--remove").done();
    assert!(removed.status.success() && !unit("usr/local").exists(), "{removed:?}");
}

/// Regression: a directory below DESTDIR that is a link led the installation, and its removal, to the system that installs.
#[test]
fn links_below_destdir_lead_nothing_outside() {
    for (script, directory, file) in [
        ("install", "usr/local/bin", "ahead"),
        ("install", "usr/local/share", "man/man1/ahead.1"),
        ("install-lib", "usr/local/lib", "libahead.a"),
        ("install-lib", "usr/local", "include/ahead.h"),
    ] {
        let tree = Tree::new();
        let kept = tree.outside.join(file);
        fs::create_dir_all(kept.parent().unwrap()).unwrap();
        fs::write(&kept, "kept").unwrap();
        let link = tree.installed(directory);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&tree.outside, &link).unwrap();
        for option in ["--from", "--remove"] {
            let refused = tree.script(script, "/usr/local").arg(option).arg(&tree.built).done();
            assert_eq!(refused.status.code(), Some(1), "{script} {option}: {refused:?}");
            assert!(text(&refused).contains("is not below DESTDIR"), "{refused:?}");
            assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
        }
        // Within the tree a link is followed.
        fs::remove_file(&link).unwrap();
        fs::create_dir(tree.installed("there")).unwrap();
        symlink(tree.installed("there"), &link).unwrap();
        let done = tree.install(script, "/usr/local");
        assert!(done.status.success() && tree.installed("there").join(file).is_file(), "{script}: {done:?}");
    }
}

#[test]
fn link_in_place_of_a_file_is_replaced() {
    let tree = Tree::new();
    let (kept, directory) = (tree.outside.join("kept"), tree.outside.join("directory"));
    fs::write(&kept, "kept").unwrap();
    fs::create_dir(&directory).unwrap();
    let files = ["bin/ahead", "share/man/man1/ahead.1", "share/zsh/site-functions/_ahead", "include/ahead.h"];
    let more = ["share/bash-completion/completions/ahead", "lib/libahead.so", "lib/libahead.so.0"];
    let more = [&more[..], &["lib/pkgconfig/ahead.pc", "lib/systemd/system/ahead-steer.service"]].concat();
    let all = || files.iter().map(|file| (file, &kept)).chain(more.iter().map(|file| (file, &directory)));
    for (file, target) in all() {
        let path = tree.installed("usr/local").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }
    for script in ["install", "install-lib"] {
        let done = tree.install(script, "/usr/local");
        assert!(done.status.success(), "{script}: {done:?}");
    }
    for (file, target) in all() {
        let path = fs::canonicalize(tree.installed("usr/local").join(file)).unwrap();
        assert!(path.is_file() && path != *target, "{file}");
    }
    assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}
