//! The models: which there are, what they say about a disk, and how they are written.

use ahead_model::checked_toml::{self, Field, Schema, checked_table};
use serde::{Deserialize, Serialize};

use crate::common::{COMMON, Common};
use crate::time::BYTES_PER_MB;
use crate::{Cloud, Flash, Hdd, ModelError};

/// A kind of disk with its figures. It can only be had built in or from checked TOML (or serde, checked alike), so that
/// no [`crate::Device`] ever sees an absurd one.
///
/// Written as TOML with `kind = "hdd"`, `"flash"` or `"cloud"`; the fields are those of [`Hdd`], [`Flash`] and
/// [`Cloud`]. `_mb_per_s` counts 10^6 bytes, as data sheets do; `_kb` counts 1024 bytes, as the kernel does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", try_from = "Unchecked")]
pub enum Model {
    /// A rotating disk.
    Hdd(Hdd),
    /// A flash disk: SATA, NVMe, eMMC.
    Flash(Flash),
    /// A network volume with limits on I/Os and bytes per second.
    Cloud(Cloud),
}

/// A model as it is read, before its figures are checked.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Unchecked {
    Hdd(Hdd),
    Flash(Flash),
    Cloud(Cloud),
}

impl TryFrom<Unchecked> for Model {
    type Error = ModelError;

    fn try_from(unchecked: Unchecked) -> Result<Model, ModelError> {
        let text = toml::to_string(&unchecked)
            .map_err(|error| ModelError::Field { line: 1, message: format!("cannot be written as TOML: {error}") })?;
        Model::from_toml(&text)
    }
}

/// Twice the 32 tags of SATA: what the block layer gives a scheduler on such a device.
const LEAST_DEFAULT_NR_REQUESTS: u32 = 64;

impl Model {
    /// Disks of today, a kind each; [`Model::builtin`] knows those of the papers besides.
    pub const BUILTIN: [&str; 5] = ["hdd", "ssd", "nvme", "emmc", "cloud"];

    /// Models of the papers' disks: Wu's 8 ms and 100 MB/s; O'Connor and Tracy's with direct memory access and with
    /// programmed input; the disk that Roudier measured on, the disk of his calculation, and its 4 and 8 MB/s with
    /// the cost of commands.
    pub const PAPERS: [&str; 7] = ["wu", "fireball", "fireball-pio", "ibm-s12", "roudier-0", "roudier-4", "roudier-8"];

    /// The built-in model of that name, or `None`.
    pub fn builtin(name: &str) -> Option<Model> {
        let text = Model::builtin_toml(name)?;
        Some(Model::from_toml(text).expect("the built-in models are checked by a test"))
    }

    /// The text of a built-in model, comments and sources included: a start for one's own.
    pub fn builtin_toml(name: &str) -> Option<&'static str> {
        Some(match name {
            "hdd" => include_str!("../models/hdd.toml"),
            "ssd" => include_str!("../models/ssd.toml"),
            "nvme" => include_str!("../models/nvme.toml"),
            "emmc" => include_str!("../models/emmc.toml"),
            "cloud" => include_str!("../models/cloud.toml"),
            "wu" => include_str!("../models/wu.toml"),
            "roudier-4" => include_str!("../models/roudier-4.toml"),
            "roudier-8" => include_str!("../models/roudier-8.toml"),
            "roudier-0" => include_str!("../models/roudier-0.toml"),
            "ibm-s12" => include_str!("../models/ibm-s12.toml"),
            "fireball" => include_str!("../models/fireball.toml"),
            "fireball-pio" => include_str!("../models/fireball-pio.toml"),
            _ => return None,
        })
    }

    /// Reads a model from TOML.
    ///
    /// Errors: text of more than 64 KiB, no TOML, an unknown or missing field, a value out of range, seek figures that
    /// no curve fits. The message names the line, the field and what is accepted.
    pub fn from_toml(text: &str) -> Result<Model, ModelError> {
        let table = checked_table(text, &SCHEMA)?;
        let at_line_1 = |message: String| ModelError::Field { line: 1, message };
        let unchecked: Unchecked =
            table.try_into().map_err(|error: toml::de::Error| at_line_1(error.message().to_owned()))?;
        let model = match unchecked {
            Unchecked::Hdd(hdd) => Model::Hdd(hdd),
            Unchecked::Flash(flash) => Model::Flash(flash),
            Unchecked::Cloud(cloud) => Model::Cloud(cloud),
        };
        if let Model::Hdd(hdd) = &model {
            hdd.check()
                .map_err(|(field, message)| ModelError::Field { line: checked_toml::line_of(text, field), message })?;
        }
        Ok(model)
    }

    /// The model as TOML; [`Model::from_toml`] gives the same model back.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a model is a flat table of numbers and text")
    }

    fn common(&self) -> &Common {
        match self {
            Model::Hdd(hdd) => &hdd.common,
            Model::Flash(flash) => &flash.common,
            Model::Cloud(cloud) => &cloud.common,
        }
    }

    /// Its name, `hdd`.
    pub fn name(&self) -> &str {
        &self.common().name
    }

    /// What it is, in a line, for people.
    pub fn description(&self) -> &str {
        &self.common().description
    }

    /// How many requests it serves at once.
    pub fn channels(&self) -> u32 {
        match self {
            Model::Hdd(_) => 1,
            Model::Flash(flash) => flash.channels,
            Model::Cloud(cloud) => cloud.outstanding,
        }
    }

    /// Whether it rotates.
    pub fn rotational(&self) -> bool {
        matches!(self, Model::Hdd(_))
    }

    /// The sustained read rate (of the outermost zone, on a rotating disk). Only what is in the buffer of a disk or
    /// within the burst of a volume is ever faster.
    pub fn bandwidth_bytes_per_s(&self) -> f64 {
        BYTES_PER_MB
            * match self {
                Model::Hdd(hdd) => hdd.outer_mb_per_s,
                Model::Flash(flash) => flash.read_mb_per_s,
                Model::Cloud(cloud) => cloud.sustained_mb_per_s(),
            }
    }

    /// The least that a read of that length can take from being taken up to its end: a rig that takes longer by itself
    /// cannot emulate this disk.
    pub fn fastest_ns(&self, length_bytes: u64) -> u64 {
        match self {
            Model::Hdd(hdd) => hdd.fastest_ns(length_bytes),
            Model::Flash(flash) => flash.fastest_ns(length_bytes),
            Model::Cloud(cloud) => cloud.fastest_ns(length_bytes),
        }
    }

    /// The scheduler that Linux gives such a disk: `mq-deadline` where there is one hardware queue (SATA, eMMC), `none`
    /// where there are many (NVMe, cloud volumes), see `elevator_get_default` in the kernel's block/elevator.c.
    pub fn scheduler(&self) -> &str {
        &self.common().scheduler
    }

    /// `nr_requests` that Linux gives its queue: twice the tags with a scheduler, the tags without
    /// (`blk_mq_default_nr_requests` in the kernel's block/blk-mq-sched.h). Where a model does not say, no fewer than
    /// it serves at once: with fewer it could never be that busy.
    pub fn nr_requests(&self) -> u32 {
        self.common().nr_requests.unwrap_or_else(|| self.channels().max(LEAST_DEFAULT_NR_REQUESTS))
    }

    /// The longest request that Linux sends it (`max_sectors_kb`).
    pub fn max_request_bytes(&self) -> u64 {
        u64::from(self.common().max_request_kb) << 10
    }
}

const SCHEMA: Schema =
    Schema { what: "a disk model", kind: Some(("kind", &["hdd", "flash", "cloud"])), fields: fields_of };

fn fields_of(kind: &str) -> Vec<Field> {
    let own: &[Field] = match kind {
        "hdd" => &Hdd::FIELDS,
        "flash" => &Flash::FIELDS,
        _ => &Cloud::FIELDS,
    };
    [&COMMON, own].concat()
}
