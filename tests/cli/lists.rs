//! `ahead check`, `import`, `export`, `replay -` and `--root`.

use crate::documents;
use crate::fetch::{home, save, used};
use ahead_profile::{Extent, File, Profile};
use ahead_tests::rig::prelude::*;
use std::ffi::OsStr;
use std::os::unix::fs::symlink;

/// Two pages of 64 KiB: a range of one page is a part of the file on every machine.
const SIZE: usize = 128 << 10;

fn write(path: &Path) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, vec![1; SIZE]).unwrap();
    path.into()
}

fn account(arguments: &[&str], list: impl Into<Vec<u8>>) -> Value {
    let account = ahead(["replay", "-", "--json", "--wait"]).args(arguments).input(list).json();
    documents::assert_documented(&["### ahead replay --json, ahead run --account FILE"], &account);
    account
}

/// Bytes that were prefetched, or were in the page cache already.
fn fetched(account: &Value) -> u64 {
    let of = |key: &str| account[key].as_u64().unwrap();
    of("issued_bytes") - of("bridged_bytes") + of("already_resident_bytes")
}

fn checked(profile: &Path, options: &[&str], status: i32) -> Value {
    let value = ahead(["check", "--json"]).args(options).arg(profile).fails(status).json();
    documents::assert_documented(&["### ahead check --json"], &value);
    value
}

/// A profile with a current, a missing, a changed and a twice listed file, and a directory.
fn profile_with_problems(home: &Path) -> PathBuf {
    let (a, b) = (write(&home.join("a")), write(&home.join("b")));
    fs::create_dir(home.join("directory")).unwrap();
    let at = |path: &Path, file: File| File { path: path.as_os_str().as_bytes().to_vec(), ..file };
    let files = vec![
        used(&a),
        at(&home.join("none"), used(&a)),
        File { mtime_ns: 1, ..used(&b) },
        used(&a),
        at(&home.join("directory"), used(&a)),
    ];
    let profile = home.join("p.ahead");
    save(files, &profile);
    profile
}

#[test]
fn check_reports_every_problem_and_fix_removes_them() {
    let (_guard, home) = home();
    let profile = profile_with_problems(&home);
    let before = checked(&profile, &[], 1);
    for (key, count) in [("missing", 1), ("changed", 1), ("same_path", 1), ("not_regular", 1), ("same_file", 0)] {
        assert_eq!(before[key], count, "{key}: {before}");
    }
    assert_eq!((&before["files"], &before["fixed"]), (&5.into(), &Value::Null));
    let problems: Vec<_> = before["problems"].as_array().unwrap().iter().map(|row| row["problem"].as_str()).collect();
    assert_eq!(problems, ["missing", "changed", "same_path", "not_regular"].map(Some));
    assert_eq!(before["problems"][2]["overlapping_bytes"], SIZE as u64);
    assert!(before["problems"][0]["path"].as_str().unwrap().ends_with("/none"));
    // People see the same, and the profile stays as it is.
    let stdout = ["5 files: 1 missing, 1 changed, 1 not regular, 1 same path"];
    ahead(["check"]).arg(&profile).fails(1).prints_all(&stdout).err_is("");
    assert_eq!(checked(&profile, &[], 1), before);
    // What is found is the status, also if it is fixed.
    let fixed = checked(&profile, &["--fix"], 1);
    assert_eq!(fixed["fixed"], serde_json::json!({ "removed": 2, "updated": 1, "merged": 1 }));
    let after = checked(&profile, &[], 0);
    assert_eq!((&after["files"], &after["problems"]), (&2.into(), &serde_json::json!([])));
    ahead(["check", "--fix"]).arg(&profile).ok().prints("2 files: as recorded");
}

#[test]
fn fix_keeps_mode_owner_and_link_of_the_profile() {
    let (_guard, home) = home();
    let (profile, link) = (profile_with_problems(&home), home.join("current"));
    symlink("p.ahead", &link).unwrap();
    let before = fs::metadata(&profile).unwrap();
    let owner = if ahead_sys::machine::is_root() { (54_321, 54_322) } else { (before.uid(), before.gid()) };
    std::os::unix::fs::chown(&profile, Some(owner.0), Some(owner.1)).unwrap();
    checked(&link, &["--fix"], 1);
    let after = fs::metadata(&profile).unwrap();
    assert!(link.is_symlink() && after.ino() != before.ino());
    assert_eq!((after.uid(), after.gid(), after.permissions().mode() & 0o777), (owner.0, owner.1, 0o600));
    assert_eq!(ahead_files::load(&profile).unwrap().files.len(), 2);
    let left = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert!(!left.iter().any(|name| name.as_bytes().ends_with(b".tmp")), "{left:?}");
}

#[test]
fn check_of_no_profile_fails_with_the_reason() {
    let (_guard, home) = home();
    fs::write(home.join("text"), "no profile").unwrap();
    let message = ["not an ahead profile"];
    for option in ["--json", "--fix"] {
        ahead(["check", option]).arg(home.join("text")).fails(1).out_is("").says_all(&message);
    }
    let missing = ["No such file or directory"];
    ahead(["check", "--fix"]).arg(home.join("none")).fails(1).says_all(&missing);
    ahead(["check", "--root", "/no/such/root"]).arg(home.join("text")).fails(1).says_all(&missing);
    ahead(["check"]).fails(2);
}

#[test]
fn list_from_standard_input_is_prefetched_and_missing_files_are_counted() {
    let (_guard, home) = home();
    let (a, b) = (write(&home.join("a")), write(&home.join("b:1-2")));
    let none = home.join("none");
    let (a, b, none) = (a.display(), b.display(), none.display());
    let account = account(&[], format!("# comment\n{a}:0-64K\n\n{b}:0-\n{none}:0-8K\n{none}2\n/\n"));
    assert_eq!(fetched(&account), SIZE as u64 + (64 << 10));
    assert_eq!(account["skipped"]["missing"], serde_json::json!({ "spans": 2, "bytes": 8192 }));
    assert_eq!(account["skipped"]["refused"]["spans"], 1);
    // For people.
    let done = ahead(["replay", "-"]).input(format!("{none}:0-8K\n")).ok();
    done.prints("missing              8.0 KiB  skipped");
    let done = ahead(["replay", "-"]).input(format!("{none}\n{none}2\n")).ok();
    done.prints("missing                  0 B  skipped: 2 files");
    ahead(["replay", "-"]).input("").ok();
}

/// A file of `pages` pages of 64 KiB with data in every `step`-th, as a disk image, a database or a core file.
fn sparse(path: &Path, pages: u64, step: usize) -> PathBuf {
    let file = fs::File::create(path).unwrap();
    file.set_len(pages << 16).unwrap();
    for page in (0..pages).step_by(step) {
        file.write_all_at(&[1; 1 << 16], page << 16).unwrap();
    }
    file.sync_all().unwrap();
    ahead_sys::evict::file(&file).unwrap();
    path.into()
}

#[test]
fn holes_of_a_listed_or_recorded_file_are_counted_and_not_read() {
    let (_guard, home) = home();
    // 256 MiB with 64 KiB of data, and 32 MiB with 128 ranges of data.
    let (core, image) = (sparse(&home.join("core"), 4096, 4096), sparse(&home.join("image"), 512, 4));
    let (data, holes) = ((1 + 128) << 16, (4095 + 384) << 16);
    let list = format!("{}\n{}\n", core.display(), image.display());
    let listed = account(&[], list.clone());
    assert_eq!((fetched(&listed), listed["holes_bytes"].as_u64()), (data, Some(holes)));
    assert!(listed["issued_bytes"].as_u64().unwrap() <= data, "no hole is bridged: {listed}");
    // A profile that says that everything was used.
    let profile = home.join("p.ahead");
    save(vec![used(&core), used(&image)], &profile);
    let done = ahead(["replay", "--wait", "--json"]).arg(&profile).done();
    let replayed: Value = done.json();
    assert_eq!((fetched(&replayed), replayed["holes_bytes"].as_u64()), (data, Some(holes)));
    let resident = resident_bytes(&core);
    assert!(resident <= 1 << 20, "{resident} bytes of a file with 64 KiB of data are cached");
    // For people, and in a profile of the list.
    let done = ahead(["replay", "-"]).input(list.clone()).ok();
    done.prints("holes              279.9 MiB");
    fs::write(home.join("list"), list).unwrap();
    let imported = home.join("i.ahead");
    import(&home.join("list"), &imported, &[]).success().says("left out: 279.9 MiB in holes of files").says("8.1 MiB");
    assert_eq!(files_of(&imported).iter().map(|(_, bytes)| bytes).sum::<u64>(), data);
}

/// Regression: of the output of `find -print0`, a file named `x:0-4K` was taken for a range of a missing file `x`, and not named.
#[test]
fn file_that_is_named_like_a_range_survives_import_export_and_replay() {
    let (_guard, home) = home();
    let directory = home.join("d");
    let names: [&[u8]; 6] = [b"plain", b"plain:0-4K", b"x:0-65536", b":0-4K", b"y:8-8", b"\xff\n:1-"];
    names.iter().for_each(|name| drop(write(&directory.join(OsStr::from_bytes(name)))));
    let found: Vec<u8> = names
        .iter()
        .flat_map(|name| [directory.join(OsStr::from_bytes(name)).as_os_str().as_bytes(), b"\0"].concat())
        .collect();
    let (list, profile, again) = (home.join("list"), home.join("p.ahead"), home.join("again.ahead"));
    fs::write(&list, &found).unwrap();
    import(&list, &profile, &["-0"]).success().says("6 files, 768.0 KiB");
    assert_eq!(fetched(&account(&["-0"], found)), 6 * SIZE as u64);
    // A part of `plain`, whose range is the name of a file that the profile does not list.
    let mut parts = ahead_files::load(&profile).unwrap();
    parts.files[0].extents[0].length_bytes = 64 << 10;
    parts.files[0].extents.truncate(1);
    parts.files[0].content = None;
    write(&directory.join("plain:0-65536"));
    ahead_files::save(&parts, &profile).unwrap();
    ahead(["export", "-0", "-o"]).arg(&list).arg(&profile).ok();
    import(&list, &again, &["-0"]).success().says("6 files, 704.0 KiB");
    assert_eq!(files_of(&again), files_of(&profile));
    // What is left out is named.
    let missing = ["left out: 1 file, missing: /no/such:0-4K"];
    let mut listed = fs::read(&list).unwrap();
    listed.extend_from_slice(b"/no/such:0-4K:0-\0");
    fs::write(&list, &listed).unwrap();
    import(&list, &again, &["-0"]).success().says_all(&missing);
    ahead(["replay", "-0", "-"]).input(listed).ok().says_all(&missing);
}

/// Regression: another file with the size and the time of the recorded one passed the check.
#[test]
fn replaced_file_with_the_same_size_and_time_is_found_and_the_same_content_accepted() {
    let (_guard, home) = home();
    let (a, profile) = (write(&home.join("a")), home.join("p.ahead"));
    fs::write(home.join("list"), format!("{}\n", a.display())).unwrap();
    import(&home.join("list"), &profile, &[]).success();
    let time = fs::metadata(&a).unwrap().modified().unwrap();
    let replace = |content: &[u8], time| {
        fs::write(home.join("new"), content).unwrap();
        fs::File::options().write(true).open(home.join("new")).unwrap().set_modified(time).unwrap();
        fs::rename(home.join("new"), &a).unwrap();
    };
    replace(&[2; SIZE], time);
    assert_eq!(checked(&profile, &[], 1)["replaced"], 1);
    assert_eq!(checked(&profile, &["--by-content"], 1)["same_content"], 0);
    let message = ["replaced (another inode), same size and time"];
    ahead(["check"]).arg(&profile).fails(1).prints_all(&message);
    replace(&[1; SIZE], std::time::UNIX_EPOCH);
    assert_eq!(checked(&profile, &[], 1)["changed"], 1);
    let accepted = checked(&profile, &["--fix", "--by-content"], 0);
    assert_eq!((&accepted["same_content"], &accepted["fixed"]["updated"]), (&1.into(), &1.into()));
    assert_eq!(checked(&profile, &[], 0)["same_content"], 0);
}

#[test]
fn entries_with_nul_bytes_have_any_name() {
    let (_guard, home) = home();
    let name = write(&home.join("#line\nend"));
    let account = account(&["-0"], [name.as_os_str().as_bytes(), b"\0"].concat());
    assert_eq!(fetched(&account), SIZE as u64);
    ahead(["replay", "-0", "p.ahead"]).fails(2).says("-0 is for a list");
}

#[test]
fn unusable_list_fails_with_the_line() {
    let fails = |list: &str, why: &'static str| {
        let done = ahead(["replay", "-"]).input(list.to_owned()).fails(1).out_is("");
        done.says("list from standard input: ").says(why);
    };
    fails("/a\n/b:8-8\n", "line 2: the range 8-8 is empty");
    fails("/a\0/b\0", "line 1: the path contains a NUL byte");
    fails(&"x".repeat(4097), "line 1: the path is longer than 4096 bytes");
    // A list in the place of a profile.
    let list = tempfile::NamedTempFile::new().unwrap();
    fs::write(list.path(), "/etc/passwd\n").unwrap();
    let hint = ["not an ahead profile", "ahead replay - < FILE"];
    ahead(["replay"]).arg(list.path()).fails(1).out_is("").says_all(&hint);
}

#[test]
fn exported_list_prefetches_what_the_profile_lists() {
    let (_guard, home) = home();
    let (part, whole) = (write(&home.join("part")), write(&home.join("whole")));
    let first = Extent { length_bytes: 64 << 10, runs: 1, ..Extent::default() };
    let profile = home.join("p.ahead");
    save(vec![File { extents: vec![first], ..used(&part) }, used(&whole)], &profile);
    let list = ahead(["export"]).arg(&profile).ok().out_bytes;
    let text = String::from_utf8(list.clone()).unwrap();
    assert_eq!(text, format!("{}:0-65536\n{}\n", part.display(), whole.display()));
    assert_eq!(fetched(&account(&[], list)), SIZE as u64 + (64 << 10));
    let paths = ahead(["export", "--format", "readahead-list"]).arg(&profile).done();
    paths.out_is(&format!("{}\n{}\n", part.display(), whole.display()));
    // To a file, with paths relative to the directory.
    let file = home.join("list");
    ahead(["export", "-0", "--root"]).arg(&home).arg("-o").arg(&file).arg(&profile).ok().out_is("");
    assert_eq!(fs::read(&file).unwrap(), b"/part:0-65536\0/whole\0");
}

fn files_of(profile: &Path) -> Vec<(String, u64)> {
    let profile = ahead_files::load(profile).unwrap();
    let row = |file: &File| (String::from_utf8_lossy(&file.path).into_owned(), file.used_bytes());
    profile.files.iter().map(row).collect()
}

fn import(list: &Path, profile: &Path, options: &[&str]) -> Done {
    ahead(["import"]).arg(list).arg("-o").arg(profile).args(options).done()
}

#[test]
fn list_and_pack_are_imported_as_they_were_exported() {
    let (_guard, home) = home();
    let (part, whole) = (write(&home.join("part")), write(&home.join("whole")));
    let first = Extent { length_bytes: 64 << 10, runs: 1, ..Extent::default() };
    let [profile, list, imported] = ["p.ahead", "list", "imported.ahead"].map(|name| home.join(name));
    save(vec![File { extents: vec![first], ..used(&part) }, used(&whole)], &profile);
    let expected = [(part.display().to_string(), 64 << 10), (whole.display().to_string(), SIZE as u64)];
    for format in ["list", "ureadahead"] {
        ahead(["export", "--format", format, "-o"]).arg(&list).arg(&profile).ok();
        import(&list, &imported, &[]).success().says("2 files, 192.0 KiB");
        assert_eq!(files_of(&imported), expected, "{format}");
        checked(&imported, &[], 0);
    }
    let bytes = fs::read(&list).unwrap();
    assert!(bytes.starts_with(b"ura\x02"));
    // A damaged pack, and a list that is no pack.
    fs::write(&list, &bytes[..bytes.len() - 1]).unwrap();
    import(&list, &imported, &[]).code(1).says("blocks cannot fit into the");
    fs::write(&list, "/etc/passwd\n").unwrap();
    import(&list, &imported, &["--format", "ureadahead"]).code(1).says("signature is missing");
    assert_eq!(files_of(&imported), expected, "a failed import leaves the earlier profile");
}

#[test]
fn template_names_the_files_that_match_now() {
    let (_guard, home) = home();
    for name in ["lib/a.so", "lib/b.so", "lib/c.txt", "lib/deep/d.so"] {
        write(&home.join(name));
    }
    let [template, profile] = ["template", "p.ahead"].map(|name| home.join(name));
    fs::write(&template, "# libraries\n/lib/*.so:0-64K\n/lib/deep/**\n/none/*\n").unwrap();
    let root = home.to_str().unwrap();
    let done = import(&template, &profile, &["--format", "template", "--root", root]).success();
    done.says("no file matches the pattern of line 4");
    let expected = [("/lib/a.so", 64 << 10), ("/lib/b.so", 64 << 10), ("/lib/deep/d.so", SIZE as u64)];
    assert_eq!(files_of(&profile), expected.map(|(path, bytes)| (path.to_owned(), bytes)));
    assert_eq!(ahead_files::load(&profile).unwrap().recording.root, home.as_os_str().as_bytes());
    fs::write(&template, "/lib/[a\n").unwrap();
    let done = import(&template, &profile, &["--format", "template"]).code(1);
    done.says("line 1: a bracket without its closing one");
}

#[test]
fn import_without_a_usable_file_writes_nothing() {
    let (_guard, home) = home();
    let (list, profile) = (home.join("list"), home.join("p.ahead"));
    fs::write(&list, "/no/such/file\n/dev/null\n").unwrap();
    let done = import(&list, &profile, &[]).code(1);
    done.says("1 file, missing").says("nothing was written");
    assert!(!profile.exists());
    import(&home.join("none"), &profile, &[]).code(1).says("none: ");
    import(&list, &profile, &["-0", "--format", "list"]).code(2);
}

/// An image with a file, links to it by an absolute and a relative path, and a link out of the image.
fn image(home: &Path) -> PathBuf {
    let image = home.join("image");
    write(&image.join("usr/lib/x"));
    write(&home.join("outside"));
    symlink("/usr/lib", image.join("lib")).unwrap();
    symlink(home.join("outside"), image.join("out")).unwrap();
    image
}

#[test]
fn paths_are_resolved_below_the_root_and_never_outside() {
    let (_guard, home) = home();
    let image = image(&home);
    let root = image.to_str().unwrap();
    let inside = |path: &str| File { path: path.into(), ..used(&image.join("usr/lib/x")) };
    let outside = File { path: b"/out".to_vec(), ..used(&home.join("outside")) };
    let profile = home.join("p.ahead");
    save(vec![inside("/lib/x"), outside], &profile);
    let replayed = |options: &[&str]| -> Value {
        let done = ahead(["replay", "--wait", "--json"]).args(options).arg(&profile).done();
        assert!(done.status.success(), "{}", done.err);
        done.json()
    };
    let below = replayed(&["--root", root]);
    assert_eq!((fetched(&below), below["skipped"]["missing"]["bytes"].as_u64()), (SIZE as u64, Some(SIZE as u64)));
    assert_eq!(fetched(&replayed(&[])), 0);
    let states = |options: &[&str]| -> Vec<String> {
        let done = ahead(["show", "--json"]).args(options).arg(&profile).done();
        let shown: Value = done.json();
        shown["file_list"].as_array().unwrap().iter().map(|file| file["state"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (states(&["--root", root]), states(&[])),
        (["current", "missing"].map(String::from).to_vec(), vec!["missing".to_owned(); 2])
    );
    assert_eq!(checked(&profile, &["--root", root], 1)["missing"], 1);
    let listed = account(&["--root", root], "/lib/x\nlib/x\n/out\n/../../outside\n");
    assert_eq!((fetched(&listed), &listed["skipped"]["missing"]["spans"]), (SIZE as u64, &2.into()));
    ahead(["replay", "--root", "/no/such/root"]).arg(&profile).fails(1).says("/no/such/root");
}

#[test]
fn profile_says_what_its_paths_are_relative_to() {
    let (_guard, home) = home();
    let image = image(&home);
    let profile = home.join("p.ahead");
    let files = vec![used(&image.join("usr/lib/x")), used(&home.join("outside"))];
    let mut whole = Profile { files, ..Profile::default() };
    whole.recording.runs = 1;
    let (relative, outside) = ahead_profile::relative_to(whole, image.as_os_str().as_bytes());
    assert_eq!(outside.files, 1);
    ahead_files::save(&relative, &profile).unwrap();
    let shown = ahead(["show", "--json"]).arg(&profile).done();
    let shown: Value = shown.json();
    documents::assert_documented(&["### ahead show --json"], &shown);
    assert_eq!(
        (&shown["root"], &shown["file_list"][0]["path"]),
        (&image.to_str().unwrap().into(), &"/usr/lib/x".into())
    );
    checked(&profile, &["--root", image.to_str().unwrap()], 0);
    // Its paths are relative already.
    let refused = ["relative to", "leave --root out"];
    ahead(["export", "--root"]).arg(&home).arg(&profile).fails(1).says_all(&refused);
    ahead(["record", "--root", "/", "--", "true"]).fails(2).says("--output");
}
