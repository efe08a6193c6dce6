//! Threads of the process, children, and addresses that are used again: in a separate program, because other tests start threads and map
//! files, too.

use ahead_read::advise::{Behaviour, advise_raw};
use ahead_sys::advice;
use ahead_sys::fork::run_in_child;
use ahead_sys::mapping::Mapping;
use std::io::Write;
use std::time::{Duration, Instant};

const PAGES: usize = 512;

fn until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

fn helper_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "ahead-advise").count()
}

#[test]
fn helper_threads_end_and_children_start_their_own() {
    let page = ahead_sys::machine::page_size() as usize;
    let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.write_all(&vec![7; PAGES * page]).unwrap();
    file.sync_all().unwrap();
    let mapping = Mapping::new(&file, PAGES * page).unwrap();
    let addresses = mapping.addresses();
    let resident = |first: usize, end: usize| {
        advice::absent(&(addresses.start + first * page..addresses.start + end * page)).unwrap().is_empty()
    };
    ahead_sys::evict::file(&file).unwrap();
    if resident(0, 1) {
        return eprintln!("skipped: the file system keeps pages that should be evicted");
    }
    for _ in 0..3 {
        let advised = advise_raw(addresses.start, addresses.len(), Behaviour::Sequential, 16).unwrap();
        until("the helper thread starts", || helper_threads() == 1);
        drop(advised);
        until("the helper thread ends", || helper_threads() == 0);
    }

    let advised = advise_raw(addresses.start, addresses.len(), Behaviour::Sequential, 16).unwrap();
    let status = run_in_child(|| {
        advised.progress(100 * page);
        until("the child reads ahead", || resident(100, 128));
        assert_eq!(helper_threads(), 1);
        advised.stop();
        until("the helper thread of the child ends", || helper_threads() == 0);
    });
    assert_eq!(status.unwrap(), 0, "the child");
    let advised = advise_raw(addresses.start, addresses.len(), Behaviour::Sequential, 16).unwrap();
    let status = run_in_child(|| drop(advised));
    assert_eq!(status.unwrap(), 0, "a child that drops the value");

    // The region ends before the value.
    let other = Mapping::new(&file, PAGES * page).unwrap();
    let gone = advise_raw(other.addresses().start, PAGES * page, Behaviour::Sequential, 16).unwrap();
    let kept = advise_raw(addresses.start, addresses.len(), Behaviour::Sequential, 16).unwrap();
    drop(other);
    gone.progress(300 * page);
    kept.progress(200 * page);
    until("the other region is read ahead", || resident(200, 224));
    drop(gone);
    kept.progress(400 * page);
    until("the other region is still read ahead", || resident(400, 424));
}
