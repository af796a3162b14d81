//! Passphrases and keys: from a terminal with echo off, from a pipe, or from the file that keylocation names.

use crate::world::World;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, Read};
use steadfast_control::secret::{Key, KeyFormat};
use steadfast_control::{Code, Refusal};
use zeroize::Zeroizing;

/// Longest input read for a key. The longest passphrase has 512 bytes.
const INPUT_BYTES_MAX: u64 = 1024;

/// Gets the key of `name` from `location` (`prompt` or `file://...`). On a terminal a new passphrase is typed twice.
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
    let file = location.strip_prefix("file://").filter(|path| path.starts_with('/'));
    let input = match file {
        Some(path) => read_file(path)?,
        None if location != "prompt" => {
            let what = format!("keylocation '{location}' is neither prompt nor file:///absolute/path");
            return Err(Refusal::new(Code::KeySource, what));
        }
        None if world.input_is_terminal => {
            if format == KeyFormat::Raw {
                let what = "a raw key cannot be typed: give it through a pipe or in a file";
                return Err(Refusal::new(Code::KeySource, what));
            }
            let kind = if format == KeyFormat::Hex { "hex key" } else { "passphrase" };
            let new = if is_new { "new " } else { "" };
            let first = ask(world, &format!("Enter {new}{kind} for '{name}': "))?;
            if is_new {
                let second = ask(world, &format!("Re-enter {new}{kind} for '{name}': "))?;
                if first != second {
                    return Err(Refusal::new(Code::KeyMismatch, "the two entries differ"));
                }
            }
            first
        }
        None => read_pipe(world, format)?,
    };
    Key::from_input(format, input).map_err(|error| Refusal::new(Code::KeyFormat, error.to_string()))
}

fn read_file(path: &str) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let mut input = Zeroizing::new(Vec::with_capacity(INPUT_BYTES_MAX as usize + 1));
    let read =
        std::fs::File::open(path).and_then(|file| file.take(INPUT_BYTES_MAX + 1).read_to_end(&mut input));
    match read {
        Ok(bytes) if bytes as u64 <= INPUT_BYTES_MAX => Ok(input),
        Ok(_) => Err(Refusal::new(Code::KeySource, format!("the key file {path} is longer than any key"))),
        Err(error) => {
            Err(Refusal::new(Code::KeySource, format!("the key file {path} cannot be read: {error}")))
        }
    }
}

/// One line, or for a raw key 32 bytes. Byte by byte, so that what follows stays for whoever reads next.
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

/// Asks on the terminal with echo off. Ctrl-C, and Ctrl-D on an empty line, give up.
fn ask(world: &mut World<'_>, prompt: &str) -> Result<Zeroizing<Vec<u8>>, Refusal> {
    let given_up = || Refusal::new(Code::KeySource, "the entry was given up");
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

/// The terminal without echo and without signals from keys (so that Ctrl-C cannot leave it so), until dropped.
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
