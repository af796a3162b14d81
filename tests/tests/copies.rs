//! One image reached in two ways, by one daemon or two, and copies of an image.

use std::path::PathBuf;

use steadfast_tests::{Host, is_root, output, skip};

/// A loop device over a file; it goes with its test.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &PathBuf) -> Loop {
        let made =
            output(std::process::Command::new("losetup").args(["-f", "--show"]).arg(file)).expect("losetup");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Loop(String::from_utf8(made.stdout).expect("a path").trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = output(std::process::Command::new("losetup").arg("-d").arg(&self.0));
    }
}

#[test]
fn one_image_is_imported_once() {
    if !is_root() {
        return skip("one image by two paths", "a loop device takes root");
    }
    let Some(host) = Host::with_tank("one image by two paths") else { return };
    let other = Host::new();
    host.shell("echo kept > t/file; zpool sync").ok();
    let image = host.at("tank.img");
    let disk = Loop::over(&image);
    let (image, disk) = (image.display().to_string(), disk.0.display().to_string());
    let import = |host: &Host, path: &str, rest: &str| host.run(&format!("pool import -d {path} -N {rest}"));
    // By another name, by force, by another daemon, as a new pool.
    import(&host, &disk, "tank more").fails(1).says("POOL-IMPORTED");
    import(&host, &disk, "-f tank more").fails(1).says("POOL-IMPORTED");
    host.run(&format!("pool create -f more {disk}")).fails(1).says("VDEV-IN-USE").says("tank");
    for path in [&image, &disk] {
        import(&other, path, "tank").fails(1).says("VDEV-IN-USE");
        import(&other, path, "-f tank").fails(1).says("VDEV-IN-USE");
    }
    // The same the other way round.
    host.shell("zpool export tank").ok();
    host.run(&format!("pool import -d {disk} tank")).ok();
    import(&other, &image, "-f tank").fails(1).says("VDEV-IN-USE");
    // As in ZFS a disk is named without its folder, unless -P asks for all of it.
    let short = disk.rsplit('/').next().expect("a name");
    host.shell("cat t/file; zpool status -P tank").ok().says("kept").says(&disk);
    let told = host.shell("zpool status tank").ok().says(&format!("\t  {short} "));
    assert!(!told.out.contains(&disk), "{}", told.out);
    host.shell("zpool list -v -H -o name tank").ok().says(&format!("\t{short}\n"));
    host.shell(&format!("zpool trim -w tank {short}; zpool iostat -v tank {short}")).ok();
    // A daemon that was killed has no lock. Its pool is its own all the same.
    host.kill_daemon();
    for path in [&image, &disk] {
        import(&other, path, "tank").fails(1).says("POOL-ACTIVE").says("this host").says("-f");
    }
    host.shell("zpool list; cat t/file; zpool scrub -w tank; zpool status tank").ok().says("kept").says("0B");
    host.shell("zpool export tank").ok();
    // Both are found in one search: the path in the label is taken.
    let both = host.run(&format!("pool import -d {image} -d {disk} tank"));
    both.ok();
    host.shell("zpool status -P tank; cat t/file").ok().says(&disk).says("kept");
    host.shell("zpool export tank").ok();
    host.run(&format!("inspect check {image}")).ok();
}

#[test]
fn a_copy_is_not_imported_in_the_place_of_its_original() {
    let Some(host) = Host::with_tank("copies of images") else { return };
    host.shell("echo kept > t/file; zpool export tank; mkdir dir; mv tank.img dir/r.img").ok();
    host.shell("zpool import -d $PWD/dir tank; zpool export tank").ok();
    host.shell("cp --sparse=always dir/r.img dir/backup.img; sha256sum < dir/backup.img > sum").ok();
    host.shell("zpool import -d $PWD/dir tank; zpool status tank").ok().says("r.img");
    host.shell("echo more > t/more; zpool export tank; sha256sum < dir/backup.img | cmp - sum").ok();
    // Nothing lies where the labels say.
    host.shell("mv dir moved").ok();
    host.shell("zpool import -d $PWD/moved")
        .ok()
        .says("VDEV-COPIES")
        .says("moved/r.img")
        .says("moved/backup.img");
    host.shell("zpool import -d $PWD/moved tank")
        .fails(1)
        .says("moved/r.img")
        .says("moved/backup.img")
        .says("zpool import -d PATH tank");
    host.shell("sha256sum < moved/backup.img | cmp - sum").ok();
    host.shell("zpool import -d $PWD/moved/r.img tank; cat t/more").ok().says("more");
    host.shell("zpool export tank").ok();
}
