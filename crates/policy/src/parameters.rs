//! The parameters with which a policy is created.

use ahead_model::DeviceDescription;

/// The parameters of a policy.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// The description of the disk. Only some policies use it; their documentation says so.
    pub device: DeviceDescription,
    /// Maximum number of unread pages over all files; `None`: a share of the memory, depending on the policy.
    pub budget_pages: Option<u64>,
    /// Whether the driver prefetches by the plan of a profile, besides the policy.
    pub is_prefetched: bool,
    /// All future accesses in order, for the clairvoyant policy.
    pub future: Option<std::sync::Arc<[(crate::FileId, crate::Page)]>>,
}
