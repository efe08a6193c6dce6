//! `ahead sim replay`: what `ahead replay --wait` would take on another disk.

use ahead::device_store::Descriptions;
use ahead_disk::ModelSource;
use ahead_model::quantity::parse_size_with_unit;
use ahead_report::text::printable;
use ahead_sim::RecordingKind;
use ahead_sim::replay::{ReplaySettings, Replayed, replay};
use ahead_sim::report::{replay_json, replay_lines};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
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
        if ahead_sim::recordings::kind_of(&self.profile).with_context(shown)? == Some(RecordingKind::Trace) {
            bail!("{}: a trace, not a profile: name a file that `ahead record` wrote", shown());
        }
        let profile = ahead_files::load(&self.profile)?;
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
        let text = match self.json {
            true => format!("{:#}\n", replay_json(&settings, &replayed, &devices)),
            false => replay_lines(&settings, &replayed),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}
