//! Processes that may not do everything: io_uring is forbidden, or no descriptor is left.

use super::target::{ColdFile, EMFILE, KIB, MIB, PAGE, Target, WAYS, in_child, threads_named};
use ahead::{Advised, Behaviour, Prefetcher, Reader, advise_raw};
use ahead_sys::mapping::Mapping;
use ahead_sys::seccomp;
use ahead_tests::rig::wait::wait_until;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, File};
use std::io::Read;

const FILE_BYTES: u64 = 8 * MIB;

fn read_page(file: &ColdFile, reader: &mut Reader) {
    let mut page = vec![0; PAGE as usize];
    reader.read_exact(&mut page).unwrap();
    assert!(page == file.page(reader.position() / PAGE - 1));
}

#[test]
fn without_io_uring_threads_read_ahead() {
    let Some(target) = Target::alone("library-seccomp") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    for way in WAYS {
        file.make_cold();
        in_child("io_uring is forbidden", || {
            seccomp::forbid_io_uring().unwrap();
            let mut reader = way.open(&file.path);
            read_page(&file, &mut reader);
            assert!(reader.counters().requests > 1, "{:?}", reader.counters());
            // A thread sets its name when it begins.
            wait_until("a thread reads ahead", || threads_named("ahead-io") > 0);
            file.read_rest(&mut reader, 10_000);
        });
    }
}

/// As programs that open their files and then give up what they do not need: the rings exist, and may not be used any more.
#[test]
fn io_uring_forbidden_while_reading_loses_no_byte() {
    let Some(target) = Target::alone("library-sandbox") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    for way in WAYS {
        for in_flight in [false, true] {
            file.make_cold();
            in_child("io_uring is forbidden while a reader has a ring", || {
                target.stall(if in_flight { 20 } else { 0 });
                let mut reader = way.open(&file.path);
                read_page(&file, &mut reader);
                target.heal();
                seccomp::forbid_io_uring().unwrap();
                read_page(&file, &mut reader);
                let mut other = way.open(&file.path);
                file.read_rest(&mut reader, 10_000);
                file.read_rest(&mut other, 10_000);
            });
        }
    }
}

/// Opens files until no descriptor is left.
pub fn use_up_descriptors() -> Vec<File> {
    let limit = Rlimit { current: Some(256), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut files = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(EMFILE));
                return files;
            }
        }
    }
}

#[test]
fn without_descriptors_open_readers_read_on_and_others_fail_to_open() {
    let Some(target) = Target::alone("library-emfile") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    for way in WAYS {
        for has_ring in [false, true] {
            file.make_cold();
            in_child("a reader without descriptors", || {
                let mut reader = way.open(&file.path);
                let given = File::open(&file.path).unwrap();
                if has_ring {
                    read_page(&file, &mut reader);
                }
                let used_up = use_up_descriptors();
                file.read_rest(&mut reader, 10_000);
                assert!(reader.counters().requests > 1, "{way:?}: {:?}", reader.counters());
                let refused = Reader::open_with(&file.path, way.options(&ahead::Budget::new(MIB))).unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(EMFILE));
                // Direct reads need another descriptor of the file: it is read through the page cache.
                let mut given = Reader::with_options(given, way.options(&ahead::Budget::new(MIB))).unwrap();
                assert!(!given.counters().is_direct);
                file.read_rest(&mut given, 10_000);
                drop(used_up);
                file.read_rest(&mut way.open(&file.path), 10_000);
            });
        }
    }
}

#[test]
fn without_descriptors_a_prefetcher_yields_all_items() {
    const FILES: usize = 20;
    let Some(target) = Target::alone("library-emfile-files") else { return };
    let files: Vec<ColdFile> = (0..FILES).map(|n| target.cold_file(&format!("{n:02}"), 100 * KIB)).collect();
    in_child("a prefetcher without descriptors", || {
        let paths = files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        let mut prefetcher = Prefetcher::new(paths.clone());
        let mut used_up = use_up_descriptors();
        for (path, number) in paths.iter().zip(0..) {
            assert_eq!(&prefetcher.next().unwrap().path, path);
            if number == FILES / 2 {
                used_up.clear();
            }
            match fs::read(path) {
                Ok(read) => assert!(read == files[number].content && number >= FILES / 2),
                Err(error) => assert!(error.raw_os_error() == Some(EMFILE) && number < FILES / 2, "{error}"),
            }
        }
        assert!(prefetcher.next().is_none());
        assert_eq!(prefetcher.counters().items, FILES as u64);
    });
}

#[test]
fn without_descriptors_advice_is_refused_and_given_advice_goes_on() {
    let Some(target) = Target::alone("library-emfile-map") else { return };
    let file = target.cold_file("file", FILE_BYTES);
    let opened = File::open(&file.path).unwrap();
    for has_helper in [false, true] {
        file.make_cold();
        in_child("a region without descriptors", || {
            let mapping = Mapping::new(&opened, FILE_BYTES as usize).unwrap();
            let addresses = mapping.addresses();
            let advise = || advise_raw(addresses.start, addresses.len(), Behaviour::Sequential, 0);
            let given: Option<Advised> = has_helper.then(|| advise().unwrap());
            let used_up = use_up_descriptors();
            let refused = advise().unwrap_err();
            assert!(refused.to_string().contains("Too many open files"), "{refused}");
            for page in 0..FILE_BYTES / PAGE {
                let mut bytes = [0; PAGE as usize];
                assert_eq!(mapping.copy((page * PAGE) as usize, &mut bytes), Some(PAGE as usize));
                assert!(bytes == file.page(page), "page {page}");
            }
            drop((given, used_up));
            drop(advise().unwrap());
        });
    }
}
