//! The fields of every kind of model.

use ahead_model::checked_toml::{Accepts, Field};
use serde::{Deserialize, Serialize};

/// Fields that every model has: its name, its description, and the queue above it.
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

/// The block layer selects `mq-deadline` for a device with one hardware queue (and `none` for many queues).
fn default_scheduler() -> String {
    "mq-deadline".to_owned()
}

/// Default of `max_sectors_kb` in Linux for a decade (`BLK_DEF_MAX_SECTORS`, 2560 sectors).
fn default_max_request_kb() -> u32 {
    1280
}

/// The fields of every kind of model. Linux has these schedulers.
pub(crate) const COMMON: [Field; 5] = [
    Field::optional("name", Accepts::Text),
    Field::optional("description", Accepts::Text),
    Field::optional("scheduler", Accepts::Word(&["none", "mq-deadline", "bfq", "kyber"])),
    Field::optional("nr_requests", Accepts::Whole(4, 65_536)),
    Field::optional("max_request_kb", Accepts::Whole(4, 65_536)),
];
