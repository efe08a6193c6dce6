//! `ahead sim replay`: what `ahead replay --wait` would take on another disk.

use ahead::device_store::Descriptions;
use ahead_disk::ModelSource;
use ahead_model::DeviceNumber;
use ahead_model::quantity::parse_size_with_unit;
use ahead_report::number::{count, grouped, size};
use ahead_report::text::printable;
use ahead_sim::RecordingKind;
use ahead_sim::replay::{ReplaySettings, Replayed, replay};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Replay a profile on a simulated disk: what `ahead replay --wait` would take there
///
/// The planner is that of `ahead run` and `ahead replay`; the disk is a model. Nothing is cached at the beginning. Each device of the
/// profile is a separate disk; the disks work at the same time.
#[derive(Debug, Args)]
pub struct Replay {
    /// Profile that `ahead record` wrote
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,
    /// Disk: hdd, ssd, nvme, emmc, cloud, one of the papers' disks, or a model in TOML (see docs/reference/device-model.md)
    #[arg(long, value_name = "MODEL")]
    disk: String,
    /// Size of the disk: seeks of a rotating disk depend on it [default: twice as far as the profile reaches]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_with_unit)]
    size: Option<u64>,
    /// Plan with this description of the disk instead of the model's own: a device description or a disk model
    #[arg(long, value_name = "FILE")]
    device: Option<PathBuf>,
    /// Prefetch at most this much
    #[arg(long, value_name = "SIZE", value_parser = parse_size_with_unit)]
    budget: Option<u64>,
    /// How much of the disk to take from other programs, as of `ahead replay`
    #[arg(long, value_name = "CLASS", default_value = "idle")]
    priority: Priority,
    /// Print JSON instead of lines (see docs/reference/device-description.md)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Priority {
    Idle,
    Normal,
}

impl Replay {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let model = ModelSource::load(&self.disk)?.model()?;
        let shown = || printable(self.profile.as_os_str().as_encoded_bytes());
        if ahead_recordings::kind_of(&self.profile).with_context(shown)? == Some(RecordingKind::Trace) {
            bail!("{}: a trace, not a profile: name a file that `ahead record` wrote", shown());
        }
        let profile = ahead_profile::load(&self.profile)?;
        let given = self.device.as_deref().map(Descriptions::given).transpose().map_err(anyhow::Error::msg)?;
        let settings = ReplaySettings {
            capacity_bytes: self.size,
            description: given.and_then(|given| given.of(None).map(|known| known.description)),
            is_background: self.priority == Priority::Idle,
            budget_bytes: self.budget.unwrap_or(u64::MAX),
            ..ReplaySettings::new(model)
        };
        let devices = replay(&profile, &settings);
        let replayed = Replayed::total(&devices);
        let text = if self.json { json(&settings, &replayed, &devices)? } else { lines(&settings, &replayed) };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn json(settings: &ReplaySettings, replayed: &Replayed, devices: &[(u64, Replayed)]) -> anyhow::Result<String> {
    let devices = devices.iter().map(|(number, own)| {
        json!({
            "device": DeviceNumber::from_key(*number).to_string(),
            "arrived_s": seconds(own.arrived_ns),
            "requests": own.requests,
            "issued_bytes": own.issued_bytes,
            "bridged_bytes": own.bridged_bytes,
        })
    });
    let whole = json!({
        "disk": settings.model.name(),
        "arrived_s": seconds(replayed.arrived_ns),
        "submitted_s": seconds(replayed.submitted_ns),
        "requests": replayed.requests,
        "issued_bytes": replayed.issued_bytes,
        "bridged_bytes": replayed.bridged_bytes,
        "over_budget_bytes": replayed.over_budget_bytes,
        "lookups": replayed.lookups,
        "device": {
            "requests": replayed.device.requests,
            "bytes": replayed.device.bytes,
            "busy_s": seconds(replayed.device.busy_ns),
            "seeks": replayed.device.seeks,
        },
        "devices": devices.collect::<Vec<_>>(),
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&whole)?))
}

fn lines(settings: &ReplaySettings, replayed: &Replayed) -> String {
    let prefetched = replayed.issued_bytes - replayed.bridged_bytes;
    let mut lines = vec![
        format!("prefetched     {:>10}  in {}", size(prefetched), count(replayed.requests, "request", "requests")),
        format!("bridged        {:>10}", size(replayed.bridged_bytes)),
    ];
    if replayed.over_budget_bytes > 0 {
        lines.push(format!("over budget    {:>10}  skipped", size(replayed.over_budget_bytes)));
    }
    if replayed.lookups > 0 {
        lines.push(format!("lookups        {:>10}  (their reads are not simulated)", grouped(replayed.lookups)));
    }
    let disk = printable(settings.model.name().as_bytes());
    let (requests, busy) = (grouped(replayed.device.requests), seconds(replayed.device.busy_ns));
    lines.push(format!("{disk}: {requests} requests, busy for {busy:.3} s, {} seeks", grouped(replayed.device.seeks)));
    lines.push(format!("arrived after {:.3} s", seconds(replayed.arrived_ns)));
    lines.join("\n") + "\n"
}

fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}
