//! Which processes and files the rules admit.

use super::*;
use std::os::unix::ffi::OsStringExt;

#[test]
fn kernel_threads_and_excluded_commands_are_not_tracked() {
    let (mut steerer, mut fake) = steerer("[[exclude]]\ncommand = 'read*'\n");
    steerer.decide(&mut fake, &event(900));
    steerer.decide(&mut fake, &event(901));
    let log = steerer.take_log();
    assert_eq!((log.len(), log[0].reason.as_str()), (1, "excluded by the rule on line 1"));
    // Another program in the process, after its lookup has become old.
    fake.process.as_mut().unwrap().comm = b"loop0".as_slice().into();
    fake.process.as_mut().unwrap().is_kernel_thread = true;
    steerer.decide(&mut fake, &event(2_000_000_000));
    assert_eq!(
        steerer.counts().refusals,
        [(Refusal::Rules(String::new()).label().unwrap(), 1), (Refusal::KernelThread.label().unwrap(), 1)].into()
    );
    fake.process = None;
    steerer.decide(&mut fake, &event(9_000_000_000));
    assert_eq!(steerer.tracked(), 0);
}

/// Regression: a program that a script executes was left alone as the script, for up to a second.
#[test]
fn program_that_another_one_executes_is_met_at_its_first_decision() {
    let (mut steerer, mut fake) = steerer("[[include]]\ncommand = 'read*'\n");
    fake.process.as_mut().unwrap().comm = b"sh".as_slice().into();
    steerer.decide(&mut fake, &Decision { comm: *b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0", ..event(900) });
    assert_eq!(steerer.tracked(), 0);
    fake.process.as_mut().unwrap().comm = b"reader".as_slice().into();
    // Threads have other names.
    steerer.decide(&mut fake, &of(|target| target.tid += 1, event(901)));
    assert_eq!(steerer.tracked(), 0);
    steerer.decide(&mut fake, &event(902));
    assert_eq!(steerer.tracked(), 1);
}

#[test]
fn excluded_paths_are_logged_once_for_a_process() {
    let (mut steerer, mut fake) = steerer("[[include]]\npath = '/home/**'\n");
    steerer.decide(&mut fake, &event(900));
    steerer.decide(&mut fake, &of(|target| target.open += 1, event(901)));
    steerer.decide(&mut fake, &event(902));
    assert_eq!(
        (steerer.take_log().len(), steerer.counts().refusals[Refusal::Rules(String::new()).label().unwrap()]),
        (1, 2)
    );
    assert!(steerer.files.values().all(|file| matches!(file.left_alone, Some(Refusal::Rules(_)))));
}

/// Regression: a cold library of the program was the only excluded file in the log, and the rule that excludes its data was not named.
#[test]
fn each_rule_that_excludes_files_of_a_process_is_logged_once() {
    let (mut steerer, mut fake) = steerer("[[include]]\npath = '/home/**'\n[[exclude]]\npath = '/srv/**'\n");
    for (open, path) in [(0, "/lib/library.so"), (1, "/srv/data"), (2, "/lib/other.so"), (3, "/srv/more")] {
        fake.path = Some(PathBuf::from(path));
        steerer.decide(&mut fake, &of(|target| target.open += open, event(900 + open)));
    }
    let reasons: Vec<_> = steerer.take_log().into_iter().map(|entry| entry.reason).collect();
    assert_eq!(reasons, ["no [[include]] rule matches", "excluded by the rule on line 3"]);
}

/// Regression: a name that is not UTF-8 was compared as text with U+FFFD in it, and a deleted file with ` (deleted)` behind its name.
#[test]
fn rules_hold_for_names_that_are_not_text_and_for_deleted_files() {
    for (path, rule) in [
        (&b"/srv/\xe9t\xe9.db"[..], "path = '/srv/?t?.db'"),
        (b"/srv/mail.db (deleted)", "path = '/srv/*.db'"),
        (b"/srv/\xff.db (deleted)", "path = '/srv/?.db'"),
        (b"/srv/x (deleted)", "path = '/srv/x (deleted)'"),
    ] {
        for (kind, tracked) in [("exclude", false), ("include", true)] {
            let (mut steerer, mut fake) = steerer(&format!("[[{kind}]]\n{rule}\n"));
            fake.path = Some(PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())));
            steerer.decide(&mut fake, &event(900));
            assert_eq!(steerer.files[&OPEN].left_alone.is_none(), tracked, "{kind} {rule}");
        }
    }
}

/// Regression: such a name was another one at each decision, and its process was looked up each time.
#[test]
fn process_whose_name_is_not_text_is_known_and_matches_by_its_bytes() {
    let (mut steerer, mut fake) = steerer("[[exclude]]\ncommand = 'r?ader'\n");
    fake.process.as_mut().unwrap().comm = b"r\xe9ader".as_slice().into();
    let event = |at| Decision { comm: *b"r\xe9ader\0\0\0\0\0\0\0\0\0\0", ..event(at) };
    steerer.decide(&mut fake, &event(900));
    assert_eq!((steerer.tracked(), steerer.take_log().len()), (0, 1));
    fake.process = None;
    steerer.decide(&mut fake, &event(901));
    assert_eq!(steerer.processes.len(), 1);
}
