COUNT=700; [ "$LONG" = 1 ] && COUNT=20000
python3 -c "$REFERENCE_TREE" "$S/ref" "$COUNT" || { echo "FAIL reference-tree"; exit 1; }
have setfacl && setfacl -m u:1:r,g:2:rw "$S/ref/sparse" && setfacl -d -m u:1:rx "$S/ref/setgid"
TAR="tar --xattrs --xattrs-include=* --sparse"
tar --help | grep -q -- --acls && TAR+=" --acls"
export TAR
set -f # the star is tar's
$TAR -C "$S/ref" --sort=name -cf "$S/ref.tar" . || { echo "FAIL reference-archive"; exit 1; }
case_ extract <<'END'
set -f; mkdir "$W/a"; $TAR -C "$W/a" -xpf "$S/ref.tar"
END
case_ no-difference <<'END'
set -f; $TAR -C "$W/a" -df "$S/ref.tar"
END
case_ pack-again <<'END'
set -f; $TAR -C "$W/a" --sort=name -cf "$W/again.tar" .
mkdir "$W/b"; $TAR -C "$W/b" -xpf "$W/again.tar"; $TAR -C "$W/b" -df "$S/ref.tar"
END
case_ remove <<'END'
rm -r "$W/a" "$W/b"; test "$(ls -A "$W")" = again.tar
END
