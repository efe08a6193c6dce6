//! What every kind of model has.

use ahead_model::checked_toml::{Accepts, Field};
use serde::{Deserialize, Serialize};

/// What every model says about itself and the queue above it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Common {
    #[serde(default = "default_name")]
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default = "default_scheduler")]
    pub scheduler: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nr_requests: Option<u32>,
    #[serde(default = "default_max_request_kb")]
    pub max_request_kb: u32,
}

fn default_name() -> String {
    "custom".to_owned()
}

/// The block layer gives `mq-deadline` to a device with one hardware queue (and `none` to one with many).
fn default_scheduler() -> String {
    "mq-deadline".to_owned()
}

/// `max_sectors_kb` that Linux gave disks for a decade (`BLK_DEF_MAX_SECTORS`, 2560 sectors).
fn default_max_request_kb() -> u32 {
    1280
}

/// The fields of every kind of model. The schedulers are those that Linux has.
pub(crate) const COMMON: [Field; 5] = [
    Field::optional("name", Accepts::Text),
    Field::optional("description", Accepts::Text),
    Field::optional("scheduler", Accepts::Word(&["none", "mq-deadline", "bfq", "kyber"])),
    Field::optional("nr_requests", Accepts::Whole(4, 65_536)),
    Field::optional("max_request_kb", Accepts::Whole(4, 65_536)),
];
