//! The command line of `ahead-replay`, the program for small machines.

use crate::fetch::{home, save, used};
use ahead_tests::rig::prelude::*;

fn ahead_replay(arguments: &[&str]) -> Program {
    program(built("ahead-replay")).args(arguments)
}

#[test]
fn help_and_version_go_to_standard_output() {
    let help = ["Usage: ahead-replay [OPTIONS] FILE", "--low-memory"];
    ahead_replay(&["--help"]).ok().prints_all(&help).err_is("");
    ahead_replay(&["-V"]).ok().prints("ahead-replay 0.").err_is("");
}

#[test]
fn wrong_usage_is_one_line_and_status_2() {
    for (arguments, why) in [
        (&[][..], "no FILE is given"),
        (&["--record", "p.ahead"], "--record"),
        (&["--budget", "4096", "p.ahead"], "has no unit"),
    ] {
        ahead_replay(arguments).fails(2).out_is("").says("ahead-replay: ").says(why).in_one_line();
    }
}

#[test]
fn unusable_profile_is_named_with_its_problem() {
    let (_guard, home) = home();
    let profile = home.join("p.ahead");

    ahead_replay(&[]).arg(&profile).fails(1).out_is("").says("p.ahead").says("No such file");
    fs::write(&profile, "no profile").unwrap();
    ahead_replay(&[]).arg(&profile).fails(1).out_is("").says("p.ahead").says("not an ahead profile");
    ahead_replay(&[]).arg(&home).fails(1).out_is("").says("a directory");
}

/// The value of a figure; 0 if it has no line.
fn figure(account: &str, name: &str) -> u64 {
    let value = account.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}

/// The account of a list from standard input.
fn account_of(arguments: &[&str], list: impl Into<Vec<u8>>) -> String {
    let output = ahead_replay(arguments).input(list).done();
    let said = output.err;
    assert!(output.status.success() && said.is_empty(), "{said}");
    output.out
}

#[test]
fn list_is_replayed_from_a_file_and_from_standard_input() {
    let (_guard, home) = home();
    let (list, data) = (home.join("boot.list"), home.join("data"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    let text = format!("# exported\n{0}:0-4K\n{0}:64K-\n{0}-gone:0-8K\n{1}\n", data.display(), home.display());
    fs::write(&list, &text).unwrap();
    let of_file = ahead_replay(&["--wait", "--low-memory"]).arg(&list).done();
    let absolute = text.lines().skip(1).collect::<Vec<_>>().join("\n");
    let nul = absolute.replace('\n', "\0");
    for account in [
        of_file.out,
        account_of(&["-", "--wait"], text),
        account_of(&["-"], absolute),
        account_of(&["-0", "-", "--wait"], nul),
    ] {
        let fetched = figure(&account, "issued_bytes") + figure(&account, "already_resident_bytes");
        assert_eq!(fetched, 4096 + 100_000 - 65_536, "{account}");
        assert_eq!(figure(&account, "skipped_missing_bytes"), 8192, "{account}");
    }
}

#[test]
fn list_with_nul_bytes_is_replayed_from_a_file() {
    let (_guard, home) = home();
    let list = home.join("list");
    fs::write(home.join("a\nb"), vec![1; 5000]).unwrap();
    fs::write(&list, "a\nb\0").unwrap();
    let output = ahead_replay(&["--null"]).current_dir(&home).arg(&list).done();
    let account = output.out;
    let fetched = figure(&account, "issued_bytes") + figure(&account, "already_resident_bytes");
    assert_eq!(fetched, 5000, "{account}");
}

#[test]
fn paths_of_a_list_are_below_the_root() {
    let (_guard, home) = home();
    fs::write(home.join("data"), vec![1; 100_000]).unwrap();
    let account = account_of(&["-", "--root", home.to_str().unwrap()], "/data\n/data2:0-4K\n");
    assert!(account.contains("already_resident_bytes 100000\n") && account.contains("skipped_missing_bytes 4096\n"));
}

#[test]
fn empty_list_and_list_without_files_have_an_account() {
    for list in ["", "# nothing\n", "/none\n"] {
        let account = account_of(&["-"], list);
        assert!(account.starts_with("requests 0\nissued_bytes 0\n") && account.contains("submitted_us "), "{account}");
    }
}

#[test]
fn unusable_list_is_named_with_its_line() {
    let (_guard, home) = home();
    let list = home.join("boot.list");

    fs::write(&list, "/a\n/b:8-8\n").unwrap();
    ahead_replay(&[]).arg(&list).fails(1).out_is("").says("boot.list: ").says("line 2: the range 8-8 is empty");
    fs::write(&list, "/a\0/b").unwrap();
    ahead_replay(&[]).arg(&list).fails(1).out_is("").says("boot.list: ").says("line 1: the path contains a NUL byte");
    // Only absolute paths and comments tell a list from a damaged profile.
    for other in ["a\n", "", "\n/a\n"] {
        fs::write(&list, other).unwrap();
        ahead_replay(&[]).arg(&list).fails(1).out_is("").says("boot.list: ").says("not an ahead profile");
    }
    ahead_replay(&["-0"]).arg(&home).fails(1).out_is("").says("not a regular file");
    let stdin = ahead_replay(&["-"]).input("/a:5-5").fails(1).out_is("");
    stdin.says("ahead-replay: standard input: line 1: ");
}

#[test]
fn account_has_one_figure_per_line() {
    let (_guard, home) = home();
    let (profile, data) = (home.join("p.ahead"), home.join("data"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    let mut gone = used(&data);
    gone.path.extend(b"-gone");
    save(vec![used(&data), gone], &profile);
    for more in [&[][..], &["--low-memory", "--wait", "--priority", "idle", "--budget", "1G", "--deadline", "60s"]] {
        let account = ahead_replay(more).arg(&profile).ok().err_is("").out;
        let figure = |name: &str| -> u64 {
            let value = account.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.unwrap_or_else(|| panic!("no {name} in {account}")).parse().unwrap()
        };
        assert_eq!(figure("issued_bytes") + figure("already_resident_bytes"), 100_000, "{account}");
        assert_eq!(figure("skipped_missing_bytes"), 100_000, "{account}");
        assert_eq!(account.contains("arrived_us "), !more.is_empty(), "{account}");
    }
}

#[test]
fn account_as_json_has_the_figures_of_the_lines() {
    let (_guard, home) = home();
    let (list, data) = (home.join("boot.list"), home.join("data"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    fs::write(&list, format!("{0}\n{0}-gone:0-8K\n", data.display())).unwrap();
    let json = ahead_replay(&["--json", "--wait"]).arg(&list).ok().err_is("").json();
    crate::documents::assert_documented(&["### ahead replay --json, ahead run --account FILE"], &json);
    let fetched = ["issued_bytes", "already_resident_bytes"];
    assert_eq!(fetched.iter().map(|name| json[name].as_u64().unwrap()).sum::<u64>(), 100_000, "{json}");
    assert_eq!(json["skipped"]["missing"]["bytes"], 8192, "{json}");
    let lines = ahead_replay(&["--wait"]).arg(&list).ok().out;
    assert_eq!(fetched.iter().map(|name| figure(&lines, name)).sum::<u64>(), 100_000, "{lines}");
    for (name, value) in json.as_object().unwrap() {
        let has_line = lines.lines().any(|line| line.starts_with(&format!("{name} ")));
        assert_eq!(has_line, value.is_number() || value.is_boolean(), "{name} in {lines}");
    }
    assert_eq!(figure(&lines, "skipped_missing_bytes"), 8192, "{lines}");
    ahead_replay(&["--json=yes"]).arg(&list).fails(2).says("--json").in_one_line();
    ahead_replay(&["--json"]).arg(home.join("none")).fails(1).out_is("").in_one_line();
}

#[test]
fn paths_are_below_the_root() {
    let (_guard, home) = home();
    let (profile, data) = (home.join("p.ahead"), home.join("data"));
    fs::write(&data, vec![1; 100_000]).unwrap();
    let mut inside = used(&data);
    inside.path = b"/data".into();
    save(vec![inside], &profile);
    let output = ahead_replay(&["--root"]).arg(&home).arg(&profile).done();
    let account = output.out;
    assert!(output.status.success() && account.contains("already_resident_bytes 100000\n"), "{account}");
    let output = ahead_replay(&[]).arg(&profile).done();
    assert!(output.out.contains("skipped_missing_bytes 100000\n"));
    let said = ["open the root directory", "p.ahead"];
    ahead_replay(&["--root"]).arg(&profile).arg(&profile).fails(1).out_is("").says_all(&said);
}
