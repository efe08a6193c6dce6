//! Which processes and files the rules admit.

use super::*;

#[test]
fn kernel_threads_and_excluded_commands_are_not_tracked() {
    let (mut steerer, mut fake) = steerer("[[exclude]]\ncommand = 'read*'\n", vec![set(128)]);
    steerer.decide(&mut fake, &event(900));
    steerer.decide(&mut fake, &event(901));
    let log = steerer.take_log();
    assert_eq!((log.len(), log[0].reason.as_str()), (1, "excluded by the rule on line 1"));
    // Another program in the process, after its lookup has become old.
    fake.process.as_mut().unwrap().comm = "loop0".into();
    fake.process.as_mut().unwrap().is_kernel_thread = true;
    steerer.decide(&mut fake, &event(2_000_000_000));
    assert_eq!(steerer.counts().refusals, [(reason::RULES, 1), (reason::KERNEL_THREAD, 1)].into());
    fake.process = None;
    steerer.decide(&mut fake, &event(9_000_000_000));
    assert_eq!((steerer.tracked(), steerer.policy.seen.len()), (0, 0));
}

/// Regression: a program that a script executes was left alone as the script, for up to a second.
#[test]
fn program_that_another_one_executes_is_met_at_its_first_decision() {
    let (mut steerer, mut fake) = steerer("[[include]]\ncommand = 'read*'\n", Vec::new());
    fake.process.as_mut().unwrap().comm = "sh".into();
    steerer.decide(&mut fake, &DecisionEvent { comm: *b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0", ..event(900) });
    assert_eq!(steerer.tracked(), 0);
    fake.process.as_mut().unwrap().comm = "reader".into();
    // Threads have other names.
    steerer.decide(&mut fake, &DecisionEvent { tid: PID + 1, ..event(901) });
    assert_eq!(steerer.tracked(), 0);
    steerer.decide(&mut fake, &event(902));
    assert_eq!(steerer.tracked(), 1);
}

#[test]
fn excluded_paths_are_logged_once_for_a_process() {
    let (mut steerer, mut fake) = steerer("[[include]]\npath = '/home/**'\n", Vec::new());
    steerer.decide(&mut fake, &event(900));
    steerer.decide(&mut fake, &DecisionEvent { open: OPEN + 1, ..event(901) });
    steerer.decide(&mut fake, &event(902));
    assert_eq!((steerer.take_log().len(), steerer.counts().refusals[reason::RULES]), (1, 2));
    assert!(steerer.policy.seen.is_empty());
}
