//! A spare that waits.

use crate::core::ranked::{RankedMutex, rank};
use std::sync::Arc;
use steadfast_device::Device;

/// A spare that waits, and its device if that is here.
pub(crate) struct Spare {
    pub guid: u64,
    pub device: Option<Arc<dyn Device>>,
    pub trouble: RankedMutex<Option<String>, rank::Trouble>,
}

impl Spare {
    pub fn new(guid: u64, device: Option<Arc<dyn Device>>) -> Arc<Spare> {
        Arc::new(Spare { guid, device, trouble: RankedMutex::new(None) })
    }

    /// Lets others have it.
    pub fn release(&self) {
        self.device.iter().for_each(|device| device.release());
    }
}
