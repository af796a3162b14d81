//! Options of mounts: from properties, and from `-o`.

use crate::engine::front::MountSettings;
use crate::engine::state::{Engine, ImportedPool};
use crate::refusal::{Code, Refusal};

impl Engine {
    pub(super) fn settings(
        &self,
        held: &ImportedPool,
        name: &str,
        options: &[String],
    ) -> Result<MountSettings, Refusal> {
        let is_on = |property: &str| self.value(held, name, property).map(|value| value == "on");
        // A file system from a raw stream cannot be written.
        let raw = held.pool.datasets().dataset_info(name).is_ok_and(|info| info.raw);
        let only = held.pool.is_read_only() || raw;
        let mut settings = MountSettings {
            source: name.to_owned(),
            read_only: only || is_on("readonly")?,
            exec: is_on("exec")?,
            setuid: is_on("setuid")?,
            devices: is_on("devices")?,
            atime: is_on("atime")?,
            relatime: is_on("relatime")?,
            dir_atime: true,
            acl: self.value(held, name, "acltype")? == "posix",
            xattr: self.value(held, name, "xattr")? != "off",
            utf8_only: is_on("utf8only")?,
            sync_always: self.front.may_collect() && self.value(held, name, "sync")? == "always",
            allow_other: self.front.may_allow_other(),
            switches: Vec::new(),
        };
        // `off` leaves the decision to STEADFAST_FUSE.
        if is_on("writeback_cache")? && self.front.may_collect() {
            settings.switches.push("writeback_cache=on".to_owned());
        }
        for option in options {
            match option.as_str() {
                "ro" => settings.read_only = true,
                "rw" => settings.read_only = only,
                "exec" => settings.exec = true,
                "noexec" => settings.exec = false,
                "suid" | "setuid" => settings.setuid = true,
                "nosuid" | "nosetuid" => settings.setuid = false,
                "dev" | "devices" => settings.devices = true,
                "nodev" | "nodevices" => settings.devices = false,
                "atime" => settings.atime = true,
                "noatime" => settings.atime = false,
                // mount(8) repeats the kernel's list, which has one word for both.
                "relatime" => (settings.atime, settings.relatime) = (true, true),
                "norelatime" => settings.relatime = false,
                "strictatime" => (settings.atime, settings.relatime) = (true, false),
                "diratime" => settings.dir_atime = true,
                "nodiratime" => settings.dir_atime = false,
                "acl" | "posixacl" => settings.acl = true,
                "noacl" => settings.acl = false,
                "xattr" | "saxattr" => settings.xattr = true,
                "noxattr" => settings.xattr = false,
                "allow_other" => settings.allow_other = true,
                "" | "defaults" | "remount" => {}
                switch if is_switch(switch) => settings.switches.push(switch.to_owned()),
                other => {
                    let what = format!(
                        "the mount option '{other}' is not known: use ro, rw, [no]exec, [no]suid, [no]dev, [no]atime, \
                         [no]relatime, [no]diratime, [no]acl, [no]xattr, allow_other or a switch of the transport (docs/measurements/fuse.md)"
                    );
                    return Err(Refusal::new(Code::PropValue, what).with("option", other));
                }
            }
        }
        Ok(settings)
    }

    /// The settings with which a file system is mounted now. A kernel that collects writes takes
    /// sizes and times from nobody but itself. So it does not where network clients change files,
    /// nor where a read-only mount could not be told of a received stream (decision 0298). It
    /// answers reads from the same pages, so it does not where each read counts (decision 0302).
    pub(super) fn settings_at_mount(
        &self,
        held: &ImportedPool,
        name: &str,
        settings: &MountSettings,
    ) -> Result<MountSettings, Refusal> {
        let mut settings = settings.clone();
        let is_left_out = settings.read_only || settings.counts_each_read();
        if is_left_out || self.value(held, name, "sharenfs")? != "off" {
            // The last switch counts, and all of them before STEADFAST_FUSE.
            settings.switches.push("writeback_cache=off".to_owned());
        }
        Ok(settings)
    }

    /// Options that differ from the properties. mount(8) gives all options; those that repeat a
    /// property follow the property when it changes.
    pub(super) fn telling(
        &self,
        held: &ImportedPool,
        name: &str,
        options: &[String],
    ) -> Result<Vec<String>, Refusal> {
        let (mut telling, mut settings) = (Vec::new(), self.settings(held, name, &[])?);
        for option in options {
            let mut more: Vec<String> = telling.clone();
            more.push(option.clone());
            let changed = self.settings(held, name, &more)?;
            if changed != settings {
                (telling, settings) = (more, changed);
            }
        }
        Ok(telling)
    }
}

/// Is this option of the form of a switch of the transport? Its value is looked at by the front.
fn is_switch(option: &str) -> bool {
    let Some((name, _)) = option.split_once('=') else { return false };
    steadfast_fuse::SWITCHES.iter().any(|switch| switch.name == name)
}
