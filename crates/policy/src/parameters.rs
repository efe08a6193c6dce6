//! What a policy may know of the machine when it is made.

use ahead_model::DeviceDescription;

/// What a policy is made with.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// The disk; only policies that say so look at it.
    pub device: DeviceDescription,
    /// The most that may be read and not yet used, over all files; `None`: a share of the memory, as the policy says.
    pub budget_pages: Option<u64>,
    /// Every access that will come, in order: for the policy that knows the future.
    pub future: Option<std::sync::Arc<[(crate::FileId, crate::Page)]>>,
}
