//! Boots with bad input and faults: each step of a boot ends with status 0 and a message, and no file is truncated. The steps run in a mount
//! namespace with an empty `/var/lib`, `/run` and `/usr/share`, so this machine keeps nothing.

use ahead_tests::rig::prelude::*;

/// The steps of one machine.
struct Machine {
    /// On a disk: pages of files in memory are not prefetched.
    home: tempfile::TempDir,
    store: String,
}

/// $1: the shell script. The path of $ahead may have a space: only lines are separated.
/// /usr/share is on a disk, for a directory in memory is not listed. The store is in memory: a full one can be made.
const NAMESPACE: &str = "mount -t tmpfs -o size=64m,mode=755 tmpfs /var/lib && mount -t tmpfs -o mode=755 tmpfs /run && \
    mount --bind \"$FILES/share\" /usr/share && mkdir -p \"$STORE\" && cd \"$FILES\" && IFS='\n' && set -e && eval \"$1\"";

impl Machine {
    /// `None`, with a message: these steps cannot run here.
    fn new() -> Option<Machine> {
        needs_root()?;
        let status = ahead(["boot", "status", "--json"]).json();
        if !status["off"].is_null() {
            return skip(format!("boots are off here: {}", status["off"]));
        }
        let home = on_disk();
        fs::create_dir(home.path().join("share")).unwrap();
        for number in 0..10 {
            fs::write(home.path().join(format!("file{number}")), vec![number; 100_000]).unwrap();
        }
        Some(Machine { home, store: status["directory"].as_str().unwrap().to_owned() })
    }

    /// Runs a script, in which `ahead` is the program. The profile of the ten files is at `$STORE/replay.ahead` if `learned`.
    fn run(&self, learned: bool, script: &str) -> Done {
        let learn = "printf '%s\\n' \"$FILES\"/file? | $ahead import - -o \"$STORE/replay.ahead\" >/dev/null 2>&1";
        let script = format!("{}; {script}", if learned { learn } else { ":" });
        let _alone = alone();
        let words = ["--mount", "--propagation", "private", "sh", "-c", NAMESPACE, "sh", &script];
        let script = program("unshare").args(words).env("ahead", built("ahead")).env("STORE", &self.store);
        script.env("FILES", self.home.path()).ok()
    }

    /// As [`Self::run`], and its standard output.
    fn output(&self, learned: bool, script: &str) -> String {
        self.run(learned, script).out
    }
}

/// The JSON in the output of a script.
fn account(output: &str) -> Value {
    let line = output.lines().find(|line| line.starts_with('{'));
    let line = line.unwrap_or_else(|| panic!("no account: {output}"));
    serde_json::Deserializer::from_str(line).into_iter().next().unwrap().unwrap()
}

#[test]
fn profile_of_another_machine_reads_nothing() {
    let Some(machine) = Machine::new() else { return };
    let replay = machine.output(
        true,
        "for file in file?; do touch -d @1 $file; done; mv file9 gone; $ahead boot replay; cat /run/ahead/boot-replay.json",
    );
    let account = account(&replay);
    assert!(replay.starts_with("replay: /var/lib/ahead/boot/"), "{replay}");
    assert_eq!((account["issued_bytes"].as_u64(), account["requests"].as_u64()), (Some(0), Some(0)), "{account}");
    assert_eq!(account["stale_bytes"].as_u64(), Some(9 * 100_000), "{account}");
}

#[test]
fn half_of_the_packages_upgraded_makes_only_their_files_stale() {
    let Some(machine) = Machine::new() else { return };
    let replay = machine.output(
        true,
        "for n in 0 2 4 6 8; do head -c 100000 /dev/urandom >new; mv new file$n; done; \
         $ahead boot changed; $ahead boot replay; cat /run/ahead/boot-replay.json",
    );
    assert!(
        replay.starts_with("changed: files: 5 as recorded, 0 replaced and kept, 0 kept in part, 5 stale"),
        "{replay}"
    );
    let account = account(&replay);
    assert_eq!(account["stale_bytes"].as_u64(), Some(5 * 100_000), "{account}");
    let found = account["issued_bytes"].as_u64().unwrap() + account["already_resident_bytes"].as_u64().unwrap();
    assert!(found >= 5 * 100_000, "{account}");
}

#[test]
fn full_state_directory_is_named_and_keeps_its_files() {
    let Some(machine) = Machine::new() else { return };
    let fill = "cp \"$STORE/replay.ahead\" /run/before; ! cat /dev/zero >/var/lib/fill 2>/dev/null; ";
    let check = "; cmp /run/before \"$STORE/replay.ahead\"; $ahead boot replay; ls -A \"$STORE\" /var/lib/ahead/boot";
    let full = machine.output(true, &format!("{fill} $ahead boot changed{check}"));
    assert!(full.starts_with("changed: skipped: ") && full.contains("No space left on device"), "{full}");
    assert!(full.contains("replay: /var/lib/ahead/boot/"), "{full}");
    assert!(!full.contains("\nstate.json") && !full.contains(".tmp"), "{full}");
    // The note has room, and the profile has none.
    let partly = "$ahead boot changed >/dev/null; cp file0 new; mv new file0; cp \"$STORE/replay.ahead\" /run/before; \
                  cp \"$STORE/state.json\" /run/state; ! cat /dev/zero >/var/lib/fill 2>/dev/null; $ahead boot done";
    let partly = machine.output(true, &format!("{partly}; cat \"$STORE/state.json\" | cmp - /run/state{check}"));
    assert!(partly.contains("done: skipped: ") && partly.contains("replay: /var/lib"), "{partly}");
}

#[test]
fn read_only_state_directory_is_named_and_replayed() {
    let Some(machine) = Machine::new() else { return };
    let output = machine.output(
        true,
        "mount -o remount,ro /var/lib; $ahead boot changed; $ahead boot replay; $ahead boot status; \
         ! $ahead boot record 2>&1",
    );
    assert!(output.starts_with("changed: skipped: ") && output.contains("Read-only file system"), "{output}");
    assert!(output.contains("replay: /var/lib/ahead/boot/") && output.contains("next boot"), "{output}");
}

#[test]
fn damaged_profile_and_state_are_skipped_with_a_message() {
    let Some(machine) = Machine::new() else { return };
    let done = machine.run(
        true,
        "head -c 300 \"$STORE/replay.ahead\" >half; mv half \"$STORE/replay.ahead\"; $ahead boot replay; $ahead boot changed; \
         printf '\\211AHEAD\\r\\n\\001\\000\\377\\377\\377\\377\\377\\377\\377\\377\\377\\377\\377\\377' >\"$STORE/replay.ahead\"; \
         $ahead boot replay; $ahead boot status; head -c 70000 /dev/zero >\"$STORE/state.json\"; $ahead boot status --json",
    );
    let output = &done.out;
    for step in ["replay: skipped: ", "changed: skipped: "] {
        let line = output.lines().find(|line| line.starts_with(step)).unwrap_or_else(|| panic!("{output}"));
        assert!(line.contains("replay.ahead: truncated at byte 300 of"), "{line}");
    }
    assert_eq!(output.matches("replay: skipped: ").count(), 2, "{output}");
    done.says("state.json: skipped: ");
}

#[test]
fn packages_profiles_are_replayed_by_a_machine_that_has_not_learned() {
    let Some(machine) = Machine::new() else { return };
    let output = machine.output(
        false,
        "mkdir -p /usr/share/ahead/boot.d; cd /usr/share/ahead/boot.d; printf '%s\\n' \"$FILES/file1\" \"$FILES/file2:0-4K\" >a.list; \
         echo x >broken.ahead; $ahead boot status; $ahead boot replay 2>&1; cat /run/ahead/boot-replay.json; echo; \
         $ahead boot changed 2>&1; $ahead boot status --json | tr -d '\\n '",
    );
    assert!(output.contains("  packages  profiles: 1 used, 0 no longer needed"), "{output}");
    assert!(output.contains("   skipped  /usr/share/ahead/boot.d/broken.ahead: not an ahead profile"), "{output}");
    assert!(output.contains("replay: /run/ahead/boot-packages.ahead: "), "{output}");
    let account = account(&output);
    let found = account["issued_bytes"].as_u64().unwrap() + account["already_resident_bytes"].as_u64().unwrap();
    assert_eq!(found, 100_000 + 4096, "{account}");
    assert!(output.contains("; profiles of packages: 1 added"), "{output}");
    assert!(output.contains("\"learned\":0,") && output.contains("\"used\":1}"), "{output}");
}

/// Two processes that observe one boot, and a transaction of the package manager meanwhile.
#[test]
fn trigger_during_a_recording_and_a_second_recorder() {
    let Some(machine) = Machine::new() else { return };
    let observe = "mkdir -p /run/ahead /usr/share/ahead/boot.d; echo \"$FILES/file1\" >/usr/share/ahead/boot.d/a.list; \
         $ahead boot observe >/run/observed 2>&1 & observer=$!; \
         for n in $(seq 600); do grep -q observing /run/observed && break; kill -0 $observer || break; sleep 0.1; done; ";
    let end = "cat file3 >/dev/null; echo 0 >/run/ahead/boot-done; kill -TERM $observer; wait $observer; \
         cat /run/observed; ls \"$STORE\"; cat \"$STORE/state.json\"";
    let both = machine.output(false, &format!("{observe} $ahead boot observe; $ahead boot changed >/dev/null; {end}"));
    if !both.contains("observe: recorded ") {
        eprintln!("skipped: boots cannot be observed here: {both:?}");
        return;
    }
    assert!(both.starts_with("observe: skipped: another process observes this boot already"), "{both}");
    let state = account(&both);
    assert_eq!(state["packages_changed"], true, "{both}");
    assert!(state["known_packages"].as_array().unwrap().is_empty(), "{both}");
    assert!(both.contains("boot-1.ahead\n") && !both.contains("boot-2.ahead"), "{both}");
    // Without the trigger the recording includes the package.
    let quiet = machine.output(false, &format!("{observe} {end}"));
    let state = account(&quiet);
    assert_eq!((&state["packages_changed"], state["known_packages"][0][0] == "a.list"), (&Value::Bool(false), true));
}

/// What a boot recorded is known by its content when the packages are installed again.
#[test]
fn packages_that_are_installed_again_are_replayed_nearly_whole() {
    let Some(machine) = Machine::new() else { return };
    let output = machine.output(
        false,
        "mkdir -p /run/ahead; $ahead boot observe >/run/observed 2>&1 & observer=$!; \
         for n in $(seq 600); do grep -q observing /run/observed && break; kill -0 $observer || break; sleep 0.1; done; \
         cat file? >/dev/null; echo 0 >/run/ahead/boot-done; kill -TERM $observer; wait $observer; \
         for file in file?; do cp $file new; touch -d @1000000000 new; mv new $file; done; \
         $ahead boot changed; $ahead check \"$STORE/replay.ahead\" | grep \"$FILES/file\" || echo all fit; cat /run/observed",
    );
    if !output.contains("observe: recorded ") {
        eprintln!("skipped: boots cannot be observed here: {output:?}");
        return;
    }
    let kept: u32 = output.split(" replaced and kept").next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(kept >= 10, "{output}");
    // Only these: other programs write files of this machine at any time.
    assert!(output.contains("\nall fit\n"), "{output}");
}

/// Regression: with umask 0 other users could write what root keeps about boots.
#[test]
fn modes_of_what_boots_keep_do_not_depend_on_the_umask() {
    let Some(machine) = Machine::new() else { return };
    for umask in ["0", "077"] {
        // First a boot that is to be recorded, then one of a machine that has recorded enough. Profiles have their own modes.
        let output = machine.output(
            true,
            &format!(
                "mv \"$STORE/replay.ahead\" .; rm -rf /var/lib/ahead; umask {umask}; $ahead boot record; $ahead boot changed; $ahead boot done; \
                 rm \"$STORE/state.json\"; mv replay.ahead \"$STORE\"; \
                 for n in 1 2 3 4 5; do cp \"$STORE/replay.ahead\" \"$STORE/boot-$n.ahead\"; done; $ahead boot replay; $ahead boot done; \
                 cd /; find var/lib/ahead run/ahead ! -name '*.lock' ! -name lock ! -name '*.ahead' -printf '%y%m %p\\n'"
            ),
        );
        let kept = ["/state.json\n", "/boot/settled-", " run/ahead/boot-replay.json\n", " run/ahead/boot-done\n"];
        assert!(kept.iter().all(|part| output.contains(part)), "{output}");
        let modes = output.lines().filter(|line| line.contains(" var/lib/ahead") || line.contains(" run/ahead"));
        for line in modes {
            assert!(line.starts_with("d755 ") || line.starts_with("f644 "), "{line} with umask {umask}");
        }
    }
}

/// Regression: without systemd `boot install` said that the next boot is observed.
#[test]
fn installation_names_what_the_next_boots_do() {
    let Some(machine) = Machine::new() else { return };
    let install = "mount -t tmpfs -o mode=755 tmpfs /etc/systemd/system; $ahead boot install --program /usr/bin/env 2>/dev/null; $ahead boot status; \
                   $ahead boot status --json | tr -d '\\n '";
    let without = machine.output(false, install);
    assert!(without.contains("systemd does not run here") && without.contains("not recorded: systemd"), "{without}");
    assert!(!without.contains("observing boots until") && !without.contains("is observed until"), "{without}");
    assert!(without.contains("\"systemd\":false") && without.contains("\"next_recording\":null"), "{without}");
    let with = machine.output(false, &format!("mkdir -p /run/systemd/system; {install}"));
    assert!(with.contains("enabled: observing boots until 60 s after default.target"), "{with}");
    for part in
        ["the replay starts ", " installed  yes\n", "    starts  ", "recorded: fewer than 5", "\"systemd\":true"]
    {
        assert!(with.contains(part), "{part}: {with}");
    }
}

/// Regression: the start of the replay in the initramfs waited for a writer of a FIFO, and the boot with it; in a full /run it ended with an error.
#[test]
fn start_in_the_initramfs_never_holds_the_boot_up() {
    let Some(machine) = Machine::new() else { return };
    let start = concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/initramfs/start-replay");
    let prepare = format!(
        "unset container; store=root/var/lib/ahead/boot/x; mkdir -p $store; echo junk >$store/replay.ahead; \
         sed 's|^program=.*|program=/usr/bin/env|' '{start}' >start; "
    );
    let run = "timeout 60 sh start \"$PWD/root\" && echo ended || echo \"status $?\"";
    let fifo = machine.output(false, &format!("{prepare} mkfifo $store/state.json; {run}"));
    assert_eq!(fifo, "ended\n");
    let full = "mount -t tmpfs -o size=16k,nr_inodes=1 tmpfs /run";
    let full = machine.output(false, &format!("{prepare} rm -f $store/state.json; {full}; {run}; ls /run"));
    assert_eq!(full, "ended\n");
}

/// The hook of the initramfs keeps what `ahead-replay` prints, and the status shows it.
#[test]
fn account_of_the_initramfs_is_read_and_an_older_or_damaged_one_is_named() {
    let Some(machine) = Machine::new() else { return };
    let replayer = built("ahead-replay");
    let early = "mkdir -p /run/initramfs && early=/run/initramfs/ahead-replay";
    let status = machine.output(
        true,
        &format!(
            "{early}; '{}' --json --deadline 60s \"$STORE/replay.ahead\" >$early; $ahead boot status --json | tr -d '\n'",
            replayer.display()
        ),
    );
    let status = account(&status);
    let of_replay = &status["account"];
    let bytes = ["issued_bytes", "already_resident_bytes"].map(|name| of_replay[name].as_u64().unwrap());
    assert_eq!(bytes.iter().sum::<u64>(), 10 * 100_000, "{status}");
    assert_eq!((status["replayed_in"].as_str(), status["account_unknown"].as_str()), (Some("initramfs"), None));
    for (content, expected) in [
        ("requests 178\\nissued_bytes 10171187\\nsubmitted_us 352110\\n", "format of an older version of ahead; "),
        ("{\"requests\": 17", "not an account: EOF while parsing"),
        ("\\033[2J\\000\\377", "not an account: expected value"),
    ] {
        let status = machine.run(true, &format!("{early}; printf '{content}' >$early; $ahead boot status"));
        let row = status.out.lines().find(|line| line.starts_with("    replay  ")).unwrap();
        assert!(row.starts_with("    replay  not known: /run/initramfs/ahead-replay: "), "{row}");
        assert!(row.contains(expected) && !row.contains('\x1b') && status.err.is_empty(), "{row} {}", status.err);
    }
    // A contradictory account is shown, as it may come from a program with a defect; no figure of it overflows.
    let most = u64::MAX;
    let content = format!("{{\"bridged_bytes\": {most}, \"stale_bytes\": {most}, \"issued_bytes\": 1}}");
    let status = machine.output(true, &format!("{early}; printf '{content}' >$early; $ahead boot status"));
    assert!(status.contains("before PID 1: prefetched 0 B in 0 requests"), "{status}");
    let empty = machine.output(true, &format!("{early}; : >$early; $ahead boot status"));
    assert!(empty.contains("    replay  none in this boot"), "{empty}");
}
