//! The streams of several readers, in one list.

/// The stream that an access continues best: the one with the least key, or the first of these. `key`: how it is continued, if it is.
pub fn find_stream<S, K: Ord>(streams: &[S], key: impl Fn(&S) -> Option<K>) -> Option<(usize, K)> {
    let found = streams.iter().enumerate().filter_map(|(index, stream)| Some((index, key(stream)?)));
    found.min_by(|(_, one), (_, other)| one.cmp(other))
}

/// Adds a stream to at most `most`. Beyond that it replaces the least recently used one, except `kept`. Returns its index, and the stream that
/// it has replaced.
pub fn add_stream<S>(
    streams: &mut Vec<S>,
    fresh: S,
    most: usize,
    kept: Option<usize>,
    used_at: impl Fn(&S) -> u64,
) -> (usize, Option<S>) {
    if streams.len() < most {
        streams.push(fresh);
        return (streams.len() - 1, None);
    }
    let others = (0..streams.len()).filter(|index| Some(*index) != kept);
    let oldest = others.min_by_key(|index| used_at(&streams[*index])).unwrap_or(0);
    (oldest, Some(std::mem::replace(&mut streams[oldest], fresh)))
}
