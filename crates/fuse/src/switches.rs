//! Switches of the transport by name, so that a measurement can turn each of them without a build:
//! words like `threads=4`, separated by commas. docs/measurements/fuse.md has what each one gains.

use crate::options::{IdlePoll, MountOptions, Readdirplus};
use thiserror::Error;

/// One switch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Switch {
    /// Name in front of `=`.
    pub name: &'static str,
    /// Values allowed behind it.
    pub values: &'static str,
    /// Its effect.
    pub meaning: &'static str,
}

const fn switch(name: &'static str, values: &'static str, meaning: &'static str) -> Switch {
    Switch { name, values, meaning }
}

/// All switches, for help and for the test that compares them with the documentation.
pub const SWITCHES: &[Switch] = &[
    switch("threads", "1 to 1024", "threads that serve while none is blocked"),
    switch(
        "poll_us",
        "0 to 1000",
        "microseconds for which a thread looks for the next request before it sleeps",
    ),
    switch(
        "idle_poll",
        "on, off, auto",
        "idle processors look for work instead of halting while requests come fast",
    ),
    switch("clone_device", "on, off", "a descriptor of its own for each thread"),
    switch(
        "io_uring",
        "on, off",
        "requests come over a queue for each processor, where the kernel offers that",
    ),
    switch("max_write", "4096 to 134217728", "bytes of the longest request"),
    switch("max_background", "1 to 65535", "asynchronous requests that may wait"),
    switch("read_ahead_kb", "0 to 1048576", "read-ahead of the mount, in KiB"),
    switch("writeback_cache", "on, off", "small buffered writes are collected in the page cache"),
    switch("dirty_percent", "1 to 100", "how much of the kernel's dirty memory collected writes may fill"),
    switch("direct_writes", "on, off", "files opened for nothing but writing bypass the page cache"),
    switch("readdirplus", "off, auto, always", "listings bring attributes"),
    switch("parallel_dirops", "on, off", "lookups and listings of one directory run in parallel"),
];

/// Why a word is no switch.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum SwitchError {
    /// No switch has this name.
    #[error("'{name}' is no switch of the transport")]
    Unknown {
        /// Name in front of `=`.
        name: String,
    },
    /// The switch does not take this value.
    #[error("the switch '{name}' takes {values}, not '{value}'")]
    Value {
        /// The switch.
        name: &'static str,
        /// Value behind `=`.
        value: String,
        /// Values allowed there.
        values: &'static str,
    },
}

impl MountOptions {
    /// Turns one switch, `NAME=VALUE`.
    pub fn set_switch(&mut self, word: &str) -> Result<(), SwitchError> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let Some(switch) = SWITCHES.iter().find(|switch| switch.name == name) else {
            return Err(SwitchError::Unknown { name: name.to_owned() });
        };
        self.turn(switch.name, value).ok_or_else(|| SwitchError::Value {
            name: switch.name,
            value: value.to_owned(),
            values: switch.values,
        })
    }

    /// Turns all switches of a list separated by commas, until the first that is wrong.
    pub fn set_switches(&mut self, list: &str) -> Result<(), SwitchError> {
        list.split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .try_for_each(|word| self.set_switch(word))
    }

    fn turn(&mut self, name: &str, value: &str) -> Option<()> {
        let on = match value {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        };
        let within = |from: u32, to: u32| value.parse().ok().filter(|number| (from..=to).contains(number));
        match name {
            "threads" => self.threads = Some(within(1, 1024)? as usize),
            "poll_us" => self.poll_us = within(0, 1000)?,
            "idle_poll" => {
                self.idle_poll = match value {
                    "on" => IdlePoll::On,
                    "off" => IdlePoll::Off,
                    "auto" => IdlePoll::Auto,
                    _ => return None,
                }
            }
            "clone_device" => self.clone_device = on?,
            "io_uring" => self.io_uring = on?,
            "max_write" => self.max_write = within(4096, 128 << 20)? as usize,
            "max_background" => self.max_background = u16::try_from(within(1, 65_535)?).ok()?,
            "read_ahead_kb" => self.read_ahead_kb = Some(within(0, 1 << 20)?),
            "writeback_cache" => self.writeback_cache = on?,
            "dirty_percent" => self.dirty_percent = u8::try_from(within(1, 100)?).ok()?,
            "direct_writes" => self.direct_writes = on?,
            "readdirplus" => {
                self.readdirplus = match value {
                    "off" => Readdirplus::Off,
                    "auto" => Readdirplus::Auto,
                    "always" => Readdirplus::Always,
                    _ => return None,
                }
            }
            "parallel_dirops" => self.parallel_dirops = on?,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_turns_what_it_names_and_nothing_else() {
        let mut options = MountOptions::new("x");
        options.set_switches("threads=4, writeback_cache=on,readdirplus=always,").unwrap();
        assert_eq!((options.threads, options.writeback_cache), (Some(4), true));
        assert_eq!(options.readdirplus, Readdirplus::Always);
        let usual = MountOptions::new("x");
        assert_eq!((options.max_write, options.clone_device), (usual.max_write, usual.clone_device));
    }

    #[test]
    fn the_documentation_names_every_switch_with_its_values() {
        let text = include_str!("../../../docs/measurements/fuse.md");
        for switch in SWITCHES {
            let row = format!("| `{}` | {} |", switch.name, switch.values);
            assert!(text.contains(&row), "docs/measurements/fuse.md has no row that begins {row}");
            assert!(text.contains(&format!("| {} |", switch.meaning)), "{}: {}", switch.name, switch.meaning);
        }
    }

    #[test]
    fn every_switch_can_be_turned_and_refuses_nonsense() {
        for switch in SWITCHES {
            let value = switch.values.split([',', ' ']).next().unwrap();
            let mut options = MountOptions::new("x");
            options.set_switch(&format!("{}={value}", switch.name)).unwrap();
            for wrong in ["", "perhaps", "-1", "99999999999"] {
                let error = options.set_switch(&format!("{}={wrong}", switch.name)).unwrap_err();
                assert!(matches!(error, SwitchError::Value { name, .. } if name == switch.name), "{error}");
            }
        }
        let error = MountOptions::new("x").set_switch("turbo=on").unwrap_err();
        assert_eq!(error, SwitchError::Unknown { name: "turbo".into() });
    }
}
