//! All arms of a run.

use super::arm::Arm;
use super::kind::Recipe;
use crate::context::Context;
use crate::error::Error;
use crate::host::shell::Shell;
use crate::host::workdir::Workdir;
use steadfast_lab_report::figures::ArmInfo;

/// All arms of a run; dropping them takes everything away.
pub struct Arms {
    list: Vec<Arm>,
    /// A shell that works even while the run unwinds.
    shell: Shell,
}

impl Arms {
    /// Makes those that can be made.
    pub(crate) fn new(
        recipes: Vec<Recipe>,
        workdir: &Workdir,
        context: &Context,
        shell: &mut Shell,
    ) -> Result<Arms, Error> {
        let last = Shell::new(&context.steadfast, &workdir.subdirectory("said-last")?);
        let mut arms = Arms { list: Vec::new(), shell: last };
        for recipe in recipes {
            arms.list.push(Arm::new(recipe, workdir)?);
            if let Some(arm) = arms.list.last_mut().filter(|arm| arm.takes_part()) {
                arm.make(shell)?;
            }
        }
        Ok(arms)
    }

    /// Their entries in the report.
    pub fn info(&self) -> Vec<ArmInfo> {
        self.list
            .iter()
            .map(|arm| ArmInfo {
                key: arm.key.to_owned(),
                label: arm.label.to_owned(),
                missing: arm.missing.clone(),
            })
            .collect()
    }

    /// Those that take part.
    pub fn present(&mut self) -> Vec<&mut Arm> {
        self.list.iter_mut().filter(|arm| arm.takes_part()).collect()
    }

    /// The arm with this key, if it takes part.
    pub fn get(&mut self, key: &str) -> Option<&mut Arm> {
        self.list.iter_mut().find(|arm| arm.key == key && arm.takes_part())
    }
}

impl Drop for Arms {
    fn drop(&mut self) {
        for arm in &mut self.list {
            arm.remove(&mut self.shell);
        }
    }
}
