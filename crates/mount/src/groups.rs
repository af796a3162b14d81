//! Groups of a caller: a request of FUSE names only the first.

use steadfast_fuse::Request;

/// True if the caller of a request belongs to a group, or if nobody can say: it is gone, or lives
/// in another pid namespace.
pub(crate) fn is_member(req: &Request, gid: u32) -> bool {
    if req.gid == gid || req.pid == 0 {
        return true;
    }
    std::fs::read_to_string(format!("/proc/{}/status", req.pid))
        .map_or(true, |status| supplementary(&status).any(|group| group == gid))
}

/// Supplementary groups in the text of /proc/PID/status.
fn supplementary(status: &str) -> impl Iterator<Item = u32> {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::supplementary;

    #[test]
    fn groups_are_read_from_the_status_of_a_process() {
        let status = "Name:\ta\nGid:\t7\t7\t7\t7\nFDSize:\t64\nGroups:\t4 24 65534 \nNStgid:\t1\n";
        assert_eq!(supplementary(status).collect::<Vec<_>>(), [4, 24, 65534]);
        assert_eq!(supplementary("Groups:\t\n").count(), 0);
    }
}
