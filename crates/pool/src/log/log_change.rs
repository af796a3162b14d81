//! A change of log devices that a commit makes.

use crate::log::log_device::LogDevice;
use crate::log::log_device::is_beside;
use std::sync::Arc;
use steadfast_format::AuxConfig;
use steadfast_format::LogOut;

/// Change of a log device, made by the next commit.
pub(crate) enum LogChange {
    /// One is out of use, for that reason; without one it is given up.
    Out { guid: u64, out: Option<LogOut> },
    /// One is in use again, as this device.
    In(Arc<LogDevice>),
    /// One comes beside another.
    Join { beside: u64, device: Arc<LogDevice> },
    /// One takes another's place.
    Swap { old: u64, device: Arc<LogDevice> },
    /// These go.
    Leave(Vec<u64>),
}

impl LogChange {
    /// Makes it in what labels list. `groups` is the greatest number of a group: a new mirror gets
    /// one that nobody has.
    pub fn list(&self, aux: &mut Vec<AuxConfig>, groups: u8) {
        fn position(aux: &[AuxConfig], guid: u64) -> Option<usize> {
            aux.iter().position(|aux| aux.guid == guid)
        }
        match self {
            LogChange::Out { guid, out } => {
                if let Some(at) = position(aux, *guid) {
                    aux[at].given_up = out.is_none();
                    aux[at].log.out = *out;
                }
            }
            LogChange::In(device) => {
                if let Some(at) = position(aux, device.guid) {
                    aux[at].given_up = false;
                    aux[at].log.out = None;
                }
            }
            LogChange::Join { beside, device } => {
                if let Some(at) = position(aux, *beside) {
                    let greatest = aux.iter().map(|aux| aux.log.mirror).max().unwrap_or(0).max(groups);
                    if aux[at].log.mirror == 0 {
                        aux[at].log.mirror = greatest.saturating_add(1);
                    }
                    let last = aux.iter().rposition(|other| is_beside(&aux[at], other)).unwrap_or(at);
                    aux.insert(last + 1, device.listed(aux[at].log.mirror));
                }
            }
            LogChange::Swap { old, device } => {
                if let Some(at) = position(aux, *old) {
                    aux[at] = device.listed(aux[at].log.mirror);
                }
            }
            LogChange::Leave(guids) => {
                aux.retain(|aux| !guids.contains(&aux.guid));
                // One that is left of a mirror stands alone.
                let is_alone = |at: usize| aux.iter().filter(|other| is_beside(&aux[at], other)).count() == 1;
                let alone: Vec<usize> = (0..aux.len()).filter(|at| is_alone(*at)).collect();
                alone.into_iter().for_each(|at| aux[at].log.mirror = 0);
            }
        }
    }

    /// The device that it is about, if it brings one.
    pub fn device(&self) -> Option<&Arc<LogDevice>> {
        match self {
            LogChange::In(device) | LogChange::Join { device, .. } | LogChange::Swap { device, .. } => {
                Some(device)
            }
            LogChange::Out { .. } | LogChange::Leave(_) => None,
        }
    }
}
