//! The disk's twin: a model that answers as the disk did, for the simulator and for emulated disks.
//!
//! Several models could have given these answers. The probe simulates each of them as a device, and selects the model whose answers are
//! nearest to the observed ones.

use crate::probe::statistics::median;
use crate::probe::subject::PAGE_BYTES;
use ahead_device::{Device, Model, ModelError, Op, Request};
use std::collections::BinaryHeap;
use std::fmt::Write;

/// Nanoseconds of a second.
const S: f64 = 1e9;
/// Request length of a long sequential read, bytes: the models' default limit (`max_request_kb`).
const REQUEST_BYTES: f64 = (1 << 20) as f64;
/// Bytes in a megabyte, as in models.
const MB: f64 = 1e6;

/// A disk with platters.
#[derive(Clone, Debug)]
pub struct Rotating {
    /// Time of a turn of the platter.
    pub turn_ns: f64,
    /// Bytes per second at the beginning.
    pub outer: f64,
    /// Bytes per second at the end.
    pub inner: f64,
    /// Seek times, nanoseconds: track to track, average, full stroke. Without them [`Rotating::access_ns`] counts.
    pub seeks: Option<[f64; 3]>,
    /// Time of any access outside a stream.
    pub access_ns: f64,
    /// Time of a request that the buffer serves.
    pub overhead_ns: f64,
    /// Bytes that the drive reads ahead.
    pub read_on_bytes: u64,
    /// Length of a segment of its buffer.
    pub segment_bytes: u64,
}

/// A flash disk.
#[derive(Clone, Debug)]
pub struct Flash {
    /// Latency of a read anywhere.
    pub read_ns: f64,
    /// Latency of a read that continues at the end of another.
    pub sequential_read_ns: f64,
    /// Bandwidth that all channels share.
    pub bytes_per_s: f64,
    /// Requests that it serves at the same time.
    pub channels: u32,
}

/// A volume with limits.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Latency of any read.
    pub latency_ns: f64,
    /// Maximum number of requests per second.
    pub requests_per_s: f64,
    /// Bandwidth limit.
    pub bytes_per_s: f64,
    /// Requests that it serves before the limit applies.
    pub burst_requests: u32,
    /// Bytes that it serves before the limit applies.
    pub burst_bytes: u64,
}

/// A disk's twin.
#[derive(Clone, Debug)]
pub enum Twin {
    /// A disk that rotates.
    Rotating(Rotating),
    /// A disk that does not rotate.
    Flash(Flash),
    /// A volume that has limits.
    Volume(Volume),
}

impl Twin {
    /// The twin as a model.
    ///
    /// Errors: a figure exceeds the limits of models.
    pub fn model(&self, name: &str, description: &str) -> Result<Model, ModelError> {
        Model::from_toml(&self.toml(name, description))
    }

    fn toml(&self, name: &str, description: &str) -> String {
        let [name, description] = [name, description].map(accepted);
        let mut text = format!("name = {name}\ndescription = {description}\n");
        let _ = match self {
            Twin::Rotating(disk) => rotating(&mut text, disk),
            Twin::Flash(disk) => write!(
                text,
                "kind = \"flash\"\nchannels = {}\nread_us = {:.2}\nsequential_read_us = {:.2}\nread_mb_per_s = {:.3}\n",
                disk.channels,
                (disk.read_ns / 1e3).max(1.0),
                (disk.sequential_read_ns / 1e3).max(1.0),
                disk.bytes_per_s / MB
            ),
            Twin::Volume(disk) => write!(
                text,
                "kind = \"cloud\"\nlatency_us = {:.2}\niops = {:.2}\nmb_per_s = {:.3}\nburst_ios = {}\nburst_kb = {}\n",
                (disk.latency_ns / 1e3).max(1.0),
                disk.requests_per_s,
                disk.bytes_per_s / MB,
                disk.burst_requests.max(1),
                (disk.burst_bytes >> 10).max(4)
            ),
        };
        text
    }
}

/// A text as models accept it: one line, cut to `MOST` characters. Paths may be longer, and may contain any character.
fn accepted(text: &str) -> toml::Value {
    /// Longest name or description of a model, characters.
    const MOST: usize = 200;
    text.chars().filter(|character| !character.is_control()).take(MOST).collect::<String>().into()
}

fn rotating(text: &mut String, disk: &Rotating) -> std::fmt::Result {
    let inner = disk.inner.min(disk.outer);
    write!(text, "kind = \"hdd\"\nrpm = {:.2}\nouter_mb_per_s = {:.3}\n", 60.0 * S / disk.turn_ns, disk.outer / MB)?;
    // Below this difference the disk has no zones: its two ends differ by measurement errors alone.
    if inner < 0.98 * disk.outer {
        writeln!(text, "inner_mb_per_s = {:.3}", inner / MB)?;
    }
    match disk.seeks {
        Some([track, average, full]) => writeln!(
            text,
            "seek_track_ms = {:.4}\nseek_average_ms = {:.4}\nseek_full_ms = {:.4}\ntrack_switch_ms = {:.4}",
            track / 1e6,
            average / 1e6,
            full / 1e6,
            track / 1e6
        )?,
        None => writeln!(text, "access_ms = {:.4}", disk.access_ns / 1e6)?,
    }
    /// Streams that a drive keeps apart, unless a description has another number.
    const SEGMENTS: u64 = 16;
    let segment_kb = (disk.segment_bytes.max(disk.read_on_bytes).max(64 << 10)) >> 10;
    writeln!(text, "overhead_us = {:.2}\nread_on_kb = {}", disk.overhead_ns / 1e3, disk.read_on_bytes >> 10)?;
    writeln!(text, "segments = {SEGMENTS}\nbuffer_kb = {}", segment_kb * SEGMENTS)
}

/// The observations of a disk that does not rotate.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Bytes that the reads covered.
    pub capacity_bytes: u64,
    /// Single reads: length and time, nanoseconds.
    pub by_length: Vec<(u64, f64)>,
    /// Time of a read of the page right after the last one, nanoseconds.
    pub sequential_page_ns: f64,
    /// Completion times of page reads that were requested at the same time, nanoseconds.
    pub batch: Vec<f64>,
    /// Throughput of a long sequential read.
    pub bytes_per_s: f64,
    /// Page reads per second, by queue depth.
    pub by_depth: Vec<(usize, f64)>,
}

impl Observed {
    fn page_ns(&self) -> f64 {
        self.by_length.first().map_or(S, |(_, ns)| *ns)
    }

    /// Reads per second at the last three queue depths.
    pub(crate) fn deepest_rates(&self) -> Vec<f64> {
        self.by_depth.iter().rev().take(3).map(|(_, rate)| *rate).collect()
    }

    fn most_requests_per_s(&self) -> f64 {
        median(&self.deepest_rates()).max(1.0)
    }
}

/// The fit accepts limits only if the error without them is larger by this factor, and by this difference. Two channels of 180 us are as
/// fast as a volume that serves 11,000 requests per second, one by one. The time of an answer is known to some 20 us.
const LIMITS_SHOW: (f64, f64) = (1.5, 0.005);

/// The twin of a disk that does not rotate.
pub fn fit(observed: &Observed) -> Twin {
    let flashes = channels(observed).into_iter().map(|channels| Twin::Flash(flash(observed, channels)));
    let volumes = bursts(observed).into_iter().map(|burst| Twin::Volume(volume(observed, burst)));
    let with_error = |twin| (error(observed, &twin), twin);
    let (times, more) = LIMITS_SHOW;
    let limited = volumes.map(with_error).map(|(error, twin)| (times * error + more, twin));
    let best = flashes.map(with_error).chain(limited).min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or_else(|| Twin::Flash(flash(observed, 1)), |(_, twin)| twin)
}

/// The candidates for the number of channels: from those that explain the most requests per second to twice that number.
fn channels(observed: &Observed) -> Vec<u32> {
    let guess = (observed.most_requests_per_s() * observed.page_ns() / S).round().max(1.0) as u32;
    (1..=(2 * guess + 2).min(1024)).filter(|channels| *channels * 2 >= guess).collect()
}

fn flash(observed: &Observed, channels: u32) -> Flash {
    let page_ns = PAGE_BYTES as f64 * S / observed.bytes_per_s;
    let read_ns = (observed.page_ns() - page_ns).max(1e3);
    let sequential_read_ns = (observed.sequential_page_ns - page_ns).clamp(1e3, read_ns);
    // With few channels nothing is transferred during the latency of each request: the bus is faster than the measured throughput. The
    // requests have the length of the reads.
    let request = REQUEST_BYTES;
    let per_request_ns = request * S / observed.bytes_per_s;
    let bus_ns =
        if channels == 1 { (per_request_ns - sequential_read_ns).max(per_request_ns / 2.0) } else { per_request_ns };
    Flash { read_ns, sequential_read_ns, bytes_per_s: request * S / bus_ns, channels }
}

/// The candidates for the number of requests in a burst. They are the number of requests in the batch that end within 1.5 times the first
/// latency, and the number before the first long pause. The numbers next to these are candidates, too.
fn bursts(observed: &Observed) -> Vec<u32> {
    let at_once = observed.batch.iter().filter(|done_ns| **done_ns < 1.5 * observed.page_ns()).count() as u32;
    let pauses: Vec<f64> = observed.batch.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let longest = pauses.iter().copied().fold(0.0, f64::max);
    let before_pause = pauses.iter().position(|pause| *pause > 0.5 * longest).map_or(at_once, |index| index as u32 + 1);
    let around = |count: u32| [count.saturating_sub(1).max(1), count.max(1), count + 1];
    let mut bursts = [[1; 3], around(at_once), around(before_pause)].concat();
    // A fast disk serves more than the burst in this half latency.
    let paced = observed.most_requests_per_s() * 0.5 * observed.page_ns() / S;
    bursts.push((f64::from(at_once) - paced).max(1.0) as u32);
    bursts.sort_unstable();
    bursts.dedup();
    bursts
}

fn volume(observed: &Observed, burst_requests: u32) -> Volume {
    let latency_ns = observed.page_ns();
    // A longer read waits for the bytes beyond the burst. Other programs, and a limit on the requests into which the read is cut, only
    // lengthen the wait. So the largest burst that any length shows is the nearest.
    let waited = |ns: f64| ((ns - latency_ns) / S * observed.bytes_per_s).max(0.0);
    let burst = observed.by_length.iter().map(|(length, ns)| *length as f64 - waited(*ns)).fold(0.0, f64::max);
    let longest = observed.by_length.last().map_or(0, |(length, _)| *length);
    // If the burst is nearly the longest read, no read has waited: the burst is at least as long.
    let shows = burst < 0.9 * longest as f64;
    let burst_bytes = if shows { (burst.max(4096.0) as u64).next_multiple_of(4096) } else { longest };
    let requests_per_s = observed.most_requests_per_s();
    Volume { latency_ns, requests_per_s, bytes_per_s: observed.bytes_per_s, burst_requests, burst_bytes }
}

/// The distance of a twin's answers from the observed ones: the mean of the squared logarithms of their ratios, by experiment.
fn error(observed: &Observed, twin: &Twin) -> f64 {
    let Ok(model) = twin.model("twin", "") else { return f64::INFINITY };
    let device = || Device::new(&model, observed.capacity_bytes.max(1 << 20));
    let away = |ours: f64, theirs: f64| (ours.max(1.0) / theirs.max(1.0)).ln().powi(2);
    let mean = |sum: f64, count: usize| sum / count.max(1) as f64;
    let lengths: f64 =
        observed.by_length.iter().map(|(length, ns)| away(rate_ns(&mut device(), *length, 1, 1), *ns)).sum();
    let batch = batch(&mut device(), observed.batch.len());
    let batch: f64 = batch.iter().zip(&observed.batch).map(|(ours, theirs)| away(*ours, *theirs)).sum();
    let depths: f64 = observed
        .by_depth
        .iter()
        .map(|(depth, rate)| away(S / rate_ns(&mut device(), PAGE_BYTES, *depth, reads_at(*depth)), *rate))
        .sum();
    mean(lengths, observed.by_length.len()) + mean(batch, observed.batch.len()) + mean(depths, observed.by_depth.len())
}

/// Completion times of the reads of a batch, nanoseconds, in ascending order.
fn batch(device: &mut Device, count: usize) -> Vec<f64> {
    let mut done: Vec<f64> = (0..count).map(|index| read(device, index, PAGE_BYTES, 0) as f64).collect();
    done.sort_by(f64::total_cmp);
    done
}

/// Number of reads after which a rate is steady at this queue depth.
fn reads_at(depth: usize) -> usize {
    20 * depth + 400
}

/// Nanoseconds per read for `count` reads of `length` bytes at queue depth `depth`.
fn rate_ns(device: &mut Device, length: u64, depth: usize, count: usize) -> f64 {
    let mut under_way = BinaryHeap::new();
    let (mut now_ns, mut first_ns) = (0, 0);
    for index in 0..count + depth {
        if under_way.len() >= depth
            && let Some(std::cmp::Reverse(done_ns)) = under_way.pop()
        {
            now_ns = done_ns;
        }
        if index == depth {
            first_ns = now_ns;
        }
        under_way.push(std::cmp::Reverse(read(device, index, length, now_ns)));
    }
    let last_ns = under_way.into_iter().map(|done| done.0).min().unwrap_or(now_ns);
    match count {
        1 => now_ns as f64,
        _ => (last_ns.max(now_ns) - first_ns) as f64 / count as f64,
    }
}

/// A read at a distance from all others.
fn read(device: &mut Device, index: usize, length: u64, now_ns: u64) -> u64 {
    let places = (device.capacity_bytes() / length / 2).max(1);
    // Golden section; every second place, so that no read follows another.
    let place = ((index as f64 * 0.618_033_988_75).fract() * places as f64) as u64 * 2;
    let request = Request { op: Op::Read, offset_bytes: place * length, length_bytes: length };
    device.submit(&request, now_ns).end_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The observations of an ideal observer of a disk of this model.
    fn observe(model: &Model) -> Observed {
        let device = || Device::new(model, 4 << 30);
        let lengths = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10];
        let depths = [1, 2, 4, 8, 16, 32, 64, 128, 256];
        let mut sequential = device();
        let request = |index: u64| Request { op: Op::Read, offset_bytes: index * 4096, length_bytes: 4096 };
        let first = sequential.submit(&request(0), 0).end_ns + 10_000_000_000;
        let second = sequential.submit(&request(1), first).end_ns;
        Observed {
            capacity_bytes: 4 << 30,
            by_length: lengths.map(|length| (length, rate_ns(&mut device(), length, 1, 1))).to_vec(),
            sequential_page_ns: (second - first) as f64,
            batch: batch(&mut device(), 32),
            bytes_per_s: model.bandwidth_bytes_per_s(),
            by_depth: depths.map(|depth| (depth, S / rate_ns(&mut device(), 4096, depth, reads_at(depth)))).to_vec(),
        }
    }

    /// Regression: Rust's format of a text is not always TOML, and a disk below such a path had no model.
    #[test]
    fn any_text_is_accepted_as_name_and_description() {
        let twin = Twin::Flash(Flash { read_ns: 1e5, sequential_read_ns: 5e4, bytes_per_s: 5e8, channels: 4 });
        let long = "/längeres/Verzeichnis".repeat(20);
        for text in [&long, "/srv/Größe", "/srv/e\u{301}\u{200b}x", "a \"quoted\" \\ path", "'''", "two\nlines\u{7f}"]
        {
            let model = twin.model("twin", text).unwrap();
            assert_eq!(Model::from_toml(&model.to_toml()).unwrap().to_toml(), model.to_toml(), "{text:?}");
        }
    }

    /// Regression: if a burst of bytes ends before the burst of requests, the last of these requests take longer than the others. The fit
    /// counted one too few.
    #[test]
    fn burst_of_requests_is_counted_after_the_end_of_the_burst_of_bytes() {
        let text = "kind = \"cloud\"\nlatency_us = 300\niops = 763\nmb_per_s = 200\nburst_ios = 25\nburst_kb = 64\n";
        let observed = observe(&Model::from_toml(text).unwrap());
        let twin = fit(&observed);
        assert!(matches!(&twin, Twin::Volume(volume) if volume.burst_requests == 25), "{twin:?}");
        assert!(error(&observed, &twin) < 0.01);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        #[test]
        fn flash_twin_has_its_channels(channels in 1..64u32, read_us in 50..2000u32, mb_per_s in 100..3000u32) {
            // If the pages saturate the bus, no experiment can count channels.
            prop_assume!(f64::from(channels) * 4096.0 / f64::from(read_us) < 0.7 * f64::from(mb_per_s));
            let text = format!("kind = \"flash\"\nchannels = {channels}\nread_us = {read_us}\nread_mb_per_s = {mb_per_s}\n");
            let observed = observe(&Model::from_toml(&text).unwrap());
            let twin = fit(&observed);
            match &twin {
                Twin::Flash(flash) => prop_assert_eq!(flash.channels, channels),
                // A single channel is a limit on requests, too.
                other => prop_assert!(channels == 1, "{:?}", other),
            }
            prop_assert!(error(&observed, &twin) < 0.01);
        }

        #[test]
        fn volume_twin_has_its_limits(latency_us in 300..5000u32, iops in 500..20_000u32, burst in 1..60u32, burst_kb in 64..512u32) {
            // If the limit on requests applies first, no experiment shows the bandwidth: a request has at most 256 KiB.
            prop_assume!(f64::from(iops) * 262_144.0 > 200e6);
            let text = format!(
                "kind = \"cloud\"\nlatency_us = {latency_us}\niops = {iops}\nmb_per_s = 200\nburst_ios = {burst}\nburst_kb = {burst_kb}\n"
            );
            let observed = observe(&Model::from_toml(&text).unwrap());
            let twin = fit(&observed);
            let away = error(&observed, &twin);
            prop_assert!(away < 0.05, "{} {:?}", away, twin);
        }
    }
}
