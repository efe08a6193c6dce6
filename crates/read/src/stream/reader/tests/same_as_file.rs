//! Any sequence of calls gives what a [`File`] gives.

use super::*;
use proptest::prelude::*;

/// A call of the program.
#[derive(Clone, Debug)]
enum Call {
    Read(usize),
    ReadAt(usize, u64),
    Seek(SeekFrom),
    /// `fill_buf`, and `consume` of at most this many bytes.
    Fill(usize),
}

fn call() -> impl Strategy<Value = Call> {
    let size = prop_oneof![0..10usize, 1..5000usize, 1..300_000usize, Just(4096), Just(65_536)];
    let offset = prop_oneof![Just(0), 0..3_000_000u64, (0..700u64).prop_map(|page| page * 4096)];
    let step = prop_oneof![-10..10i64, -100_000..100_000i64, -3_000_000..3_000_000i64, Just(i64::MIN), Just(i64::MAX)];
    prop_oneof![
        8 => size.clone().prop_map(Call::Read),
        3 => (size.clone(), offset.clone()).prop_map(|(size, offset)| Call::ReadAt(size, offset)),
        1 => offset.prop_map(|offset| Call::Seek(SeekFrom::Start(offset))),
        1 => step.clone().prop_map(|step| Call::Seek(SeekFrom::Current(step))),
        1 => step.prop_map(|step| Call::Seek(SeekFrom::End(step))),
        1 => Just(Call::Seek(SeekFrom::Start(u64::MAX))),
        4 => size.prop_map(Call::Fill),
    ]
}

/// Makes the call on both, and compares.
fn check(call: &Call, reader: &mut Reader, file: &mut File) -> std::result::Result<(), TestCaseError> {
    match call {
        Call::Read(size) => {
            let (mut ours, mut theirs) = (vec![1; *size], vec![1; *size]);
            let (read, expected) = (reader.read(&mut ours).unwrap(), file.read(&mut theirs).unwrap());
            prop_assert_eq!(read, expected);
            prop_assert!(ours == theirs, "{:?} bytes differ", call);
        }
        Call::ReadAt(size, offset) => {
            let (mut ours, mut theirs) = (vec![1; *size], vec![1; *size]);
            let (read, expected) =
                (reader.read_at(&mut ours, *offset).unwrap(), file.read_at(&mut theirs, *offset).unwrap());
            prop_assert_eq!(read, expected);
            prop_assert!(ours == theirs, "{:?} bytes differ", call);
        }
        Call::Seek(target) => {
            let (ours, theirs) = (reader.seek(*target), file.seek(*target));
            // ext4 has no offsets beyond 16 TiB: a file refuses them earlier than a reader.
            if !matches!(target, SeekFrom::Current(i64::MAX) | SeekFrom::End(i64::MAX)) || ours.is_err() {
                prop_assert_eq!(ours.map_err(|error| error.kind()), theirs.map_err(|error| error.kind()));
            } else {
                reader.seek(SeekFrom::Start(file.stream_position().unwrap())).unwrap();
            }
        }
        Call::Fill(size) => {
            let position = file.stream_position().unwrap();
            let ready = reader.fill_buf().unwrap();
            let mut expected = vec![0; ready.len().max(1)];
            let read = file.read_at(&mut expected, position).unwrap();
            prop_assert_eq!(read, ready.len());
            prop_assert!(ready == &expected[..read], "{:?} bytes differ", call);
            let used = ready.len().min(*size);
            reader.consume(used);
            file.seek(SeekFrom::Current(used as i64)).unwrap();
        }
    }
    prop_assert_eq!(reader.stream_position().unwrap(), file.stream_position().unwrap());
    Ok(())
}

fn pattern() -> impl Strategy<Value = Option<Pattern>> {
    let given =
        [Pattern::Random, Pattern::Sequential, Pattern::Backward, Pattern::Stride(40_000), Pattern::Stride(-9000)];
    prop_oneof![3 => Just(None), 2 => prop::sample::select(given.to_vec()).prop_map(Some)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_calls_give_what_a_file_gives(
        size in prop_oneof![0..5000usize, 0..2_500_000usize],
        calls in prop::collection::vec(call(), 1..60),
        way in prop::sample::select(WAYS.to_vec()),
        budget_bytes in prop_oneof![Just(1), 1..300_000u64, Just(64 << 20)],
        largest_distance_bytes in prop_oneof![Just(0), 1..300_000u64, Just(16 << 20)],
        pattern in pattern(),
    ) {
        let DirectoryFile { file, .. } = file_with(content(size));
        // Cold as far as it can be evicted: the bytes are the same in any state of the cache.
        ahead_sys::evict::file(file.as_file()).unwrap();
        let mut reference = file.reopen().unwrap();
        let budget = Budget::new(budget_bytes);
        let options = ReaderOptions { budget: budget.clone(), pattern, largest_distance_bytes, ..ReaderOptions::default() };
        if let Some(mut reader) = reader(file.as_file(), way, options) {
            for call in &calls {
                check(call, &mut reader, &mut reference)?;
            }
        }
        prop_assert_eq!((budget.used_bytes(), budget.readers()), (0, 0));
    }
}
