"""SQLite on the mount. argv: command, database, journal mode, rows."""
import os, signal, sqlite3, subprocess, sys, time

command, path, mode, rows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])


def connect():
    base = sqlite3.connect(path, timeout=60, isolation_level=None)
    base.execute("pragma synchronous=full")
    found = base.execute("pragma journal_mode=" + mode).fetchone()[0]
    assert found == mode, "journal mode is %s, not %s" % (found, mode)
    base.execute("pragma mmap_size=%d" % (16 << 20 if mode == "truncate" else 0))
    return base


def whole(base):
    assert base.execute("pragma integrity_check").fetchall() == [("ok",)]
    # Every transaction moves from one account to another: the sum never changes.
    assert base.execute("select sum(amount) from account").fetchone()[0] == 100 * rows


def load():
    base = connect()
    base.execute("create table account(id integer primary key, amount integer, about text)")
    base.execute("create index about on account(about)")
    base.execute("create table log(entry integer primary key, about text)")
    base.execute("begin")
    base.executemany("insert into account values(?, 100, ?)", ((n, "account %d" % (n * 7919 % rows)) for n in range(rows)))
    base.execute("commit")
    for entry in range(60):
        transfer(base, entry, entry)
    base.execute("vacuum")
    whole(base)


def transfer(base, a, entry):
    base.execute("begin immediate")
    base.execute("update account set amount = amount - 1 where id = ?", (a * 31 % rows,))
    base.execute("update account set amount = amount + 1 where id = ?", (a * 17 % rows,))
    base.execute("insert into log(about) values(?)", ("x" * (entry % 3000),))
    base.execute("commit")


def write():
    base = connect()
    entry = 0
    while True:
        transfer(base, entry, entry)
        entry += 1
        if entry % 10 == 0:
            print(base.execute("select count(*) from log").fetchone()[0], flush=True)


def killed():
    for turn in range(4):
        child = subprocess.Popen([sys.executable, __file__ if "__file__" in globals() else sys.argv[0], "write"] + sys.argv[2:], stdout=subprocess.PIPE, text=True)
        known = int(child.stdout.readline())
        time.sleep(0.05 * turn)
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split()
        child.wait()
        known = int(rest[-1]) if rest else known
        base = connect()
        whole(base)
        assert base.execute("select count(*) from log").fetchone()[0] >= known
        base.close()


def together():
    children = [subprocess.Popen([sys.executable, sys.argv[0], "some"] + sys.argv[2:]) for _ in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    whole(connect())


def some():
    base = connect()
    for entry in range(25):
        transfer(base, os.getpid() + entry, entry)


{"load": load, "write": write, "killed": killed, "together": together, "some": some}[command]()
