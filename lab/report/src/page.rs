//! The files of an output directory. Each is plain text behind one line of HTML, flushed line by
//! line, so that monitoring programs read along.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// One file. Failures to write are kept and told at the end: a full disk must not end a
/// measurement.
pub(crate) struct Page {
    file: BufWriter<File>,
    failed: Option<io::Error>,
}

impl Page {
    /// Creates `dir/name` with vdbench's first line.
    pub(crate) fn create(dir: &Path, name: &str) -> io::Result<Page> {
        let shown = dir.join(name);
        let mut page = Page { file: BufWriter::new(File::create(&shown)?), failed: None };
        if name.ends_with(".html") {
            page.line(&format!("<title>Vdbench {}</title><pre>", escape(&shown.display().to_string())));
        }
        Ok(page)
    }

    /// Writes one line.
    pub(crate) fn line(&mut self, text: &str) {
        let done = self
            .file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.write_all(b"\n"))
            .and_then(|()| self.file.flush());
        if let (Err(error), None) = (done, &self.failed) {
            self.failed = Some(error);
        }
    }

    /// The first failure, if any.
    pub(crate) fn failure(self) -> Option<io::Error> {
        self.failed
    }
}

/// Makes text safe inside `<pre>`.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// The name of a link to a run.
pub(crate) fn hash(label: &str, loops: &str) -> u32 {
    // FNV-1a; any stable number does.
    let bytes = label.bytes().chain([b' ']).chain(loops.bytes());
    bytes.fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)) >> 1
}

/// Finds the directory that `-o` means: `dir` as it is, `dir+` with the first free number,
/// `dir.tod` with date and time.
pub(crate) fn resolve(wanted: &str, compact_time: &str) -> PathBuf {
    if let Some(base) = wanted.strip_suffix('+') {
        if !Path::new(base).exists() {
            return base.into();
        }
        let free = (1u32..).map(|n| PathBuf::from(format!("{base}{n:03}"))).find(|path| !path.exists());
        return free.unwrap_or_else(|| base.into());
    }
    match wanted.strip_suffix(".tod") {
        Some(base) => format!("{base}.{compact_time}").into(),
        None => wanted.into(),
    }
}
