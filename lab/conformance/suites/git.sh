export GIT_CONFIG_NOSYSTEM=1 HOME=$S
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
git config --global init.defaultBranch main
git config --global core.fsync all
git config --global core.fsyncMethod fsync
git config --global advice.detachedHead false
export FILES=300
[ "$LONG" = 1 ] && FILES=5000

# The same history in two places must have the same hashes; the second place is not the one under test.
cat > "$S/history" <<'END'
set -euo pipefail
git init -q repo && cd repo
for commit in 1 2 3 4 5 6; do
    mkdir -p d{0..16}/e{0..4}
    # One process for all files: starting one for each would be most of the run.
    awk -v commit="$commit" -v files="$FILES" 'BEGIN {
        for (file = commit; file <= files; file += 3) {
            path = "d" file % 17 "/e" file % 5 "/f" file
            for (line = file; line <= file * commit % 400 + file; line++) print line > path
            close(path)
        }
    }'
    ln -sf "d$commit" link
    if [ "$commit" = 4 ]; then git add -A; git mv d3 moved; git rm -q -r -f d5; fi
    chmod +x d1/e*/f*
    git add -A
    GIT_AUTHOR_DATE="2001-02-03T04:0$commit:00Z" GIT_COMMITTER_DATE="2001-02-03T04:0$commit:00Z" git commit -q -m "commit $commit"
done
{ git rev-parse HEAD; git archive HEAD | sha1sum; } > ../hashes
END
case_ history <<'END'
mkdir "$S/reference"; (cd "$S/reference" && bash "$S/history")
bash "$S/history"
cmp hashes "$S/reference/hashes"
END
case_ status-is-clean <<'END'
cd repo; test -z "$(git status --porcelain)"; git diff --exit-code
END
case_ gc-and-fsck <<'END'
cd repo; git gc -q --prune=now; git fsck --full --strict
END
case_ clone-local <<'END'
git clone -q --local repo local; cd local; git fsck --full --strict; git rev-parse HEAD | cmp - <(head -1 "$W/hashes")
END
case_ clone-no-local <<'END'
git clone -q --no-local repo far; cd far; git fsck --full --strict; git archive HEAD | sha1sum | cmp - <(tail -1 "$W/hashes")
END
case_ checkouts <<'END'
cd far; for back in 5 3 1 4 0; do git checkout -q "origin/main~$back"; test -z "$(git status --porcelain)"; done
END
case_ worktree <<'END'
cd repo; git worktree add -q ../tree HEAD~2; cd ../tree; test -z "$(git status --porcelain)"; cd ../repo; git worktree remove ../tree
END
