//! Reads passphrases and keys: from a terminal with echo off, from a pipe, or from the file in
//! keylocation.

use crate::world::World;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io;
use steadfast_control::api::Properties;
use steadfast_control::secret::{INPUT_BYTES_MAX, Key, KeyFormat, key_in_file, key_path};
use steadfast_control::{Code, Refusal};
use zeroize::Zeroizing;

/// Reads the key of a new dataset, if its properties ask for one.
///
/// # Errors
/// As [`obtain`].
pub fn of_new(world: &mut World<'_>, name: &str, properties: &Properties) -> Result<Option<Key>, Refusal> {
    // The daemon refuses an unknown format, with the values that are allowed.
    let Some(format) = properties.get("keyformat").and_then(|text| KeyFormat::parse(text)) else {
        return Ok(None);
    };
    if properties.get("encryption").is_some_and(|e| e == "off") {
        return Ok(None);
    }
    let location = properties.get("keylocation").map_or("prompt", String::as_str);
    obtain(world, name, format, location, true).map(Some)
}

/// Reads the key of `name` from `location` (`prompt` or `file://...`). On a terminal a new
/// passphrase is typed twice.
///
/// # Errors
/// [`Code::KeyFormat`], [`Code::KeySource`], [`Code::KeyMismatch`].
pub fn obtain(
    world: &mut World<'_>,
    name: &str,
    format: KeyFormat,
    location: &str,
    is_new: bool,
) -> Result<Key, Refusal> {
    let input = match key_path(location) {
        Some(path) => return key_in_file(format, path),
        None if location != "prompt" => {
            let what = format!("keylocation '{location}' must be prompt or file:///absolute/path");
            return Err(Refusal::new(Code::KeySource, what));
        }
        None if world.input_is_terminal => {
            if format == KeyFormat::Raw {
                let what = "a raw key cannot be typed: use a pipe or a file";
                return Err(Refusal::new(Code::KeySource, what));
            }
            let kind = if format == KeyFormat::Hex { "hex key" } else { "passphrase" };
            let new = if is_new { "new " } else { "" };
            let first = ask(world, &format!("Enter {new}{kind} for '{name}': "))?;
            if is_new {
                let second = ask(world, &format!("Re-enter {new}{kind} for '{name}': "))?;
                if first != second {
                    return Err(Refusal::new(Code::KeyMismatch, "the two entries do not match"));
                }
            }
            first
        }
        None => read_pipe(world, format)?,
    };
    Key::from_input(format, input).map_err(|error| Refusal::new(Code::KeyFormat, error.to_string()))
}

/// Reads one line, or 32 bytes of a raw key. Reads byte by byte: later bytes stay in the pipe.
fn read_pipe(world: &mut World<'_>, format: KeyFormat) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let mut input = Zeroizing::new(Vec::with_capacity(INPUT_BYTES_MAX as usize));
    let mut byte = [0];
    while (input.len() as u64) < INPUT_BYTES_MAX {
        match world.input.read(&mut byte) {
            Ok(0) => break,
            Ok(_) if format != KeyFormat::Raw && byte[0] == b'\n' => break,
            Ok(_) => input.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Refusal::new(Code::KeySource, format!("standard input cannot be read: {error}")));
            }
        }
        if format == KeyFormat::Raw && input.len() == steadfast_control::secret::RAW_KEY_BYTES {
            break;
        }
    }
    Ok(input)
}

/// Asks on the terminal with echo off. Ctrl-C cancels, and so does Ctrl-D on an empty line.
fn ask(world: &mut World<'_>, prompt: &str) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let given_up = || Refusal::new(Code::KeySource, "the input was canceled");
    let _ = world.err.write_all(prompt.as_bytes()).and_then(|()| world.err.flush());
    let quiet = Quiet::begin();
    let mut input = Zeroizing::new(Vec::with_capacity(INPUT_BYTES_MAX as usize));
    let mut byte = [0];
    let result = loop {
        match world.input.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                break Err(Refusal::new(Code::KeySource, format!("the terminal cannot be read: {error}")));
            }
            Ok(0) if input.is_empty() => break Err(given_up()),
            Ok(0) => break Ok(()),
            Ok(_) => {}
        }
        match byte[0] {
            b'\n' | b'\r' => break Ok(()),
            0x03 => break Err(given_up()),
            0x04 if input.is_empty() => break Err(given_up()),
            0x04 => break Ok(()),
            0x08 | 0x7f => {
                input.pop();
            }
            0x15 => input.clear(),
            _ if input.len() as u64 >= INPUT_BYTES_MAX => break Ok(()),
            other => input.push(other),
        }
    };
    drop(quiet);
    let _ = world.err.write_all(b"\n");
    result.map(|()| input)
}

/// Turns off the terminal's echo and key signals until dropped. With signals, Ctrl-C would leave
/// the echo off.
struct Quiet {
    before: Option<Termios>,
}

impl Quiet {
    fn begin() -> Quiet {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).ok();
        if let Some(before) = &before {
            let mut silent = before.clone();
            silent.local_modes &= !(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
            let _ = tcsetattr(&stdin, OptionalActions::Flush, &silent);
        }
        Quiet { before }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }
}
