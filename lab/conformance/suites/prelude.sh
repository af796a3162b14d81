# What every suite may use. PASS, FAIL and SKIP at the start of a line are read by the program; the rest is for people.
umask 022

skip_all() { echo "SKIP all $*"; exit 0; }

have() { command -v "$1" >/dev/null 2>&1; }

# case_ NAME [DIRECTORY]: runs what stands on standard input in a shell of its own that stops at the first failure, in W
# or in DIRECTORY. The shell that reads the suite itself stands outside the mount, so that a case can export the pool.
case_() {
    local name=$1 place=${2:-$W} text
    text=$(cat)
    echo "--- $name"
    if (cd "$place" && exec bash -euo pipefail -xc "$text" </dev/null); then
        echo "PASS $name"
    else
        echo "FAIL $name exit status $?"
    fi
}
