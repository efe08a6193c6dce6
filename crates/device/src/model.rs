//! The models: the list of them, their figures, and their TOML form.

use ahead_model::checked_toml::{self, Field, Schema, checked_table};
use serde::{Deserialize, Serialize};

use crate::common::{COMMON, Common};
use crate::time::BYTES_PER_MB;
use crate::{Cloud, Flash, Hdd, ModelError};

/// A kind of disk with its figures. A model is built in or read from checked TOML (or by serde, with the same checks),
/// so no [`crate::Device`] has impossible figures.
///
/// The TOML form has `kind = "hdd"`, `"flash"` or `"cloud"`, and the fields of [`Hdd`], [`Flash`] or [`Cloud`].
/// `_mb_per_s` counts 10^6 bytes, as data sheets do; `_kb` counts 1024 bytes, as the kernel does.
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

/// A parsed model, before its figures are checked.
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

/// Twice the 32 tags of SATA: the block layer's default for a scheduler on such a device.
const LEAST_DEFAULT_NR_REQUESTS: u32 = 64;

impl Model {
    /// Current disks, one of each kind; [`Model::builtin`] also accepts [`Model::PAPERS`].
    pub const BUILTIN: [&str; 5] = ["hdd", "ssd", "nvme", "emmc", "cloud"];

    /// Models of the papers' disks: Wu's 8 ms and 100 MB/s; O'Connor and Tracy's disk with direct memory access and
    /// with programmed input; Roudier's measured disk, the disk of his calculation, and its 4 and 8 MB/s with the cost
    /// of commands.
    pub const PAPERS: [&str; 7] = ["wu", "fireball", "fireball-pio", "ibm-s12", "roudier-0", "roudier-4", "roudier-8"];

    /// The built-in model with this name, or `None`.
    pub fn builtin(name: &str) -> Option<Model> {
        let text = Model::builtin_toml(name)?;
        Some(Model::from_toml(text).expect("the built-in models are checked by a test"))
    }

    /// The text of a built-in model, including comments and sources: a template for a custom model.
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
    /// no curve fits. The message names the line, the field and the accepted values.
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

    /// Its description, one line for users.
    pub fn description(&self) -> &str {
        &self.common().description
    }

    /// Number of requests that it serves at the same time.
    pub fn channels(&self) -> u32 {
        match self {
            Model::Hdd(_) => 1,
            Model::Flash(flash) => flash.channels,
            Model::Cloud(cloud) => cloud.outstanding,
        }
    }

    /// Whether it is a rotating disk.
    pub fn rotational(&self) -> bool {
        matches!(self, Model::Hdd(_))
    }

    /// The sustained read rate (on a rotating disk, of the outermost zone). Only reads from the buffer of a disk or
    /// within the burst of a volume are faster.
    pub fn bandwidth_bytes_per_s(&self) -> f64 {
        BYTES_PER_MB
            * match self {
                Model::Hdd(hdd) => hdd.outer_mb_per_s,
                Model::Flash(flash) => flash.read_mb_per_s,
                Model::Cloud(cloud) => cloud.sustained_mb_per_s(),
            }
    }

    /// Minimum time of a read of this length from start to end. An emulation with a longer overhead cannot emulate this
    /// disk.
    pub fn fastest_ns(&self, length_bytes: u64) -> u64 {
        match self {
            Model::Hdd(hdd) => hdd.fastest_ns(length_bytes),
            Model::Flash(flash) => flash.fastest_ns(length_bytes),
            Model::Cloud(cloud) => cloud.fastest_ns(length_bytes),
        }
    }

    /// The scheduler that Linux selects for such a disk: `mq-deadline` with one hardware queue (SATA, eMMC), `none`
    /// with many (NVMe, cloud volumes); see `elevator_get_default` in the kernel's block/elevator.c.
    pub fn scheduler(&self) -> &str {
        &self.common().scheduler
    }

    /// `nr_requests` that Linux sets for its queue: twice the tags with a scheduler, the tags without
    /// (`blk_mq_default_nr_requests` in the kernel's block/blk-mq-sched.h). The default is at least the number of
    /// requests in service at the same time: a shorter queue could never keep the disk busy.
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
