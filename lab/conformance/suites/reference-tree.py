"""Makes a tree with everything a copy can lose: argv[1] where, argv[2] how many ordinary files."""
import os, random, sys

root, count = sys.argv[1], int(sys.argv[2])
noise = random.Random(7)
os.makedirs(root)
os.chdir(root)
for number in range(count):
    folder = "d%d/e%d" % (number % 13, number % 7)
    os.makedirs(folder, exist_ok=True)
    name = "%s/f%d" % (folder, number)
    with open(name, "wb") as file:
        file.write(noise.randbytes(noise.choice([0, 1, 100, 4095, 4096, 4097, 20000, 140000])))
    os.chmod(name, noise.choice([0o600, 0o644, 0o755, 0o444]))
    os.utime(name, ns=(10**18 + number, 10**18 + number * 7 + 123456789))
with open("sparse", "wb") as file:
    for place in (0, 1 << 20, (1 << 20) + 7, 50 << 20):
        file.seek(place)
        file.write(b"data" * 300)
    file.truncate(64 << 20)
os.link("d0/e0/f0", "second-name")
os.link("d0/e0/f0", "d1/third-name")
os.symlink("x" * 4000, "long-link")
os.symlink("../nowhere", b"link \xff\n")
os.mkfifo("pipe")
open("n" * 255, "w").close()
open(b"not utf-8 \xfe \n", "w").close()
os.mkdir("setgid")
os.chmod("setgid", 0o2775)
if os.geteuid() == 0:
    os.chown("d2/e2/f2", 1, 2)
    os.chmod("d2/e2/f2", 0o6755)
    os.mknod("device", 0o20600, os.makedev(1, 3))
for name, value in (("user.short", b"v"), ("user.long", b"w" * 2000), ("user.empty", b"")):
    try:
        os.setxattr("sparse", name, value)
        os.setxattr("d1", name, value)
    except OSError as error:
        print("attributes left out here:", error)
os.utime("d1", ns=(10**18, 10**18 + 1))
