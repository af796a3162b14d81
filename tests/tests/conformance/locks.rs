//! Locks and leases. All users of a mount are on this machine, so the kernel keeps them; these rows
//! say that it does.

use super::{Ask::Python, Row, promised};

const ROWS: &[Row] = &[
    Row {
        name: "one holds a whole-file lock, others wait or are told",
        ask: Python(
            r#"
put('a', ''); a, b = open('a'), open('a')
fcntl.flock(a, fcntl.LOCK_EX)
refuses(errno.EAGAIN, fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.flock(a, fcntl.LOCK_SH); fcntl.flock(b, fcntl.LOCK_SH | fcntl.LOCK_NB)
a.close(); fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
"#,
        ),
    },
    Row {
        name: "who waits for a lock is woken by a signal, and can be killed",
        ask: Python(
            r#"
import threading
put('a', '')
for lock in ('flock', 'lockf'):
    holder = open('a', 'r+'); getattr(fcntl, lock)(holder, fcntl.LOCK_EX)
    script = f'''
import fcntl, signal, sys
class Woken(Exception): pass
def wake(*_): raise Woken
signal.signal(signal.SIGUSR1, wake)
file = open('a', 'r+')
try:
    print('ready', flush=True); fcntl.{lock}(file, fcntl.LOCK_EX)
except Woken:
    print('woken', flush=True)
fcntl.{lock}(file, fcntl.LOCK_EX)
'''
    waiter = subprocess.Popen([sys.executable, '-c', script], stdout=subprocess.PIPE, text=True)
    assert waiter.stdout.readline() == 'ready\n'
    # Again and again, because the first may come before it waits.
    done = threading.Event()
    def knock():
        while not done.wait(0.1): waiter.send_signal(signal.SIGUSR1)
    helper = threading.Thread(target=knock); helper.start()
    said = waiter.stdout.readline(); done.set(); helper.join()
    assert said == 'woken\n', said
    waiter.kill(); assert waiter.wait(300) in (-signal.SIGKILL, 1)  # or a last knock was not caught
    holder.close()
"#,
        ),
    },
    Row {
        name: "ranges are locked by process, split, joined, and freed with it",
        ask: Python(
            r#"
put('a', 'x' * 100); f = open('a', 'r+')
fcntl.lockf(f, fcntl.LOCK_EX, 10, 0); fcntl.lockf(f, fcntl.LOCK_EX, 10, 20)
def taken(start, length):
    child = os.fork()
    if child == 0:
        try:
            fcntl.lockf(open('a', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, length, start); os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
assert taken(5, 1) and taken(25, 1) and not taken(10, 10)
fcntl.lockf(f, fcntl.LOCK_UN, 4, 3)
assert taken(2, 1) and not taken(3, 4) and taken(7, 1)
other = open('a'); other.close()      # closing any descriptor of the file frees them all
assert not taken(0, 100)
"#,
        ),
    },
    Row {
        name: "a circle of waiting processes is told as a deadlock",
        ask: Python(
            r#"
put('a', 'xx'); f = open('a', 'r+')
fcntl.lockf(f, fcntl.LOCK_EX, 1, 0)
script = '''
import fcntl
f = open('a', 'r+')
fcntl.lockf(f, fcntl.LOCK_EX, 1, 1); print('ready', flush=True); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0)
'''
child = subprocess.Popen([sys.executable, '-c', script], stdout=subprocess.PIPE, text=True)
assert child.stdout.readline() == 'ready\n'
# Until the child waits, this would wait for the child.
deadline = time.time() + 300
while time.time() < deadline:
    with open('/proc/locks') as locks:
        if any('->' in line and f' {child.pid} ' in line for line in locks): break
    time.sleep(0.05)
refuses(errno.EDEADLK, fcntl.lockf, f, fcntl.LOCK_EX, 1, 1)
fcntl.lockf(f, fcntl.LOCK_UN); assert child.wait(300) == 0
"#,
        ),
    },
    Row {
        name: "locks of open file descriptions exclude each other within a process",
        ask: Python(
            r#"
F_OFD_SETLK, F_OFD_GETLK = 37, 36
put('a', 'x' * 9); a, b = open('a', 'r+'), open('a', 'r+')
whole = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 0, 0)
fcntl.fcntl(a, F_OFD_SETLK, whole)
refuses(errno.EAGAIN, fcntl.fcntl, b, F_OFD_SETLK, whole)
assert struct.unpack('hhqqi4x', fcntl.fcntl(b, F_OFD_GETLK, whole))[0] == fcntl.F_WRLCK
a.close(); fcntl.fcntl(b, F_OFD_SETLK, whole)
"#,
        ),
    },
    Row {
        name: "who holds a lease is told before another opens",
        ask: Python(
            r#"
put('a', ''); f = os.open('a', os.O_RDWR)
fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
assert fcntl.fcntl(f, fcntl.F_GETLEASE) == fcntl.F_WRLCK
told = []
signal.signal(signal.SIGIO, lambda *_: (told.append(1), fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_UNLCK)))
child = subprocess.Popen(['sh', '-c', 'echo text >>a'])
while child.poll() is None: time.sleep(0.05)
assert child.returncode == 0 and told and get('a') == b'text\n'
"#,
        ),
    },
];

#[test]
fn locks_hold() {
    promised("locks", ROWS);
}
