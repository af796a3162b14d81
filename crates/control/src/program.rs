//! The program's own code in memory.
//!
//! The kernel reads a page of a program when it is executed first, and may drop it again until
//! then. So the first request of a kind waited for the disk that has the program: a create behind
//! an import for 0.3 to 0.8 ms, twice the time of the ten after it. Pages that the process has
//! mapped are dropped last.
//!
//! A read of `/proc/self/mem` maps the page as an access would, without a pointer in our hands.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Pages are not smaller.
const PAGE: u64 = 4_096;

/// Has all code of the program mapped, some 30 MiB in 10 ms. Returns the number of its bytes.
///
/// # Errors
/// The system shows a process that is not dumpable nothing of itself, unless it is root's.
pub(crate) fn bring_in_code() -> io::Result<u64> {
    let program = fs::read_link("/proc/self/exe")?;
    let code = code_of(&fs::read_to_string("/proc/self/maps")?, &program.to_string_lossy());
    let memory = File::open("/proc/self/mem")?;
    let mut bytes = 0;
    for range in code {
        bytes += range.end - range.start;
        for page in range.step_by(PAGE as usize) {
            memory.read_exact_at(&mut [0], page)?;
        }
    }
    Ok(bytes)
}

/// Addresses of a program's code, out of `/proc/PID/maps`.
fn code_of(maps: &str, program: &str) -> Vec<Range<u64>> {
    let range = |line: &str| {
        let (head, path) = line.split_at_checked(line.find('/')?)?;
        let mut fields = head.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let is_code = fields.next()?.starts_with("r-x") && path == program;
        let number = |text| u64::from_str_radix(text, 16).ok();
        is_code.then_some(number(start)?..number(end)?)
    };
    maps.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_from_data_and_from_libraries() {
        let maps = "\
55d0c4000000-55d0c4794000 r--p 00000000 fe:00 12 /usr/bin/steadfast
55d0c4794000-55d0c640d000 r-xp 00793000 fe:00 12 /usr/bin/steadfast
7f0000000000-7f0000021000 rw-p 00000000 00:00 0
7f0000100000-7f0000200000 r-xp 00028000 fe:00 13 /usr/lib/libc.so.6
7fff00000000-7fff00002000 r-xp 00000000 00:00 0  [vdso]
";
        let code = |program| code_of(maps, program).into_iter().map(|code| (code.start, code.end));
        assert!(code("/usr/bin/steadfast").eq([(0x55d0_c479_4000, 0x55d0_c640_d000)]));
        assert!(code("/usr/bin/other").eq([]));
    }

    #[test]
    fn all_code_is_mapped_afterwards() {
        let bytes = bring_in_code().expect("a test may read its own memory");
        let program = fs::read_link("/proc/self/exe").expect("it runs");
        let program = program.to_string_lossy();
        let smaps = fs::read_to_string("/proc/self/smaps").expect("it runs");
        let mut lines =
            smaps.lines().skip_while(|line| !(line.contains(" r-xp ") && line.ends_with(&*program)));
        let resident = lines.find_map(|line| line.strip_prefix("Rss:")).expect("a figure of it");
        let kib: u64 = resident.trim().trim_end_matches("kB").trim().parse().expect("a number");
        assert_eq!(kib << 10, bytes);
    }
}
