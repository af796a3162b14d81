COUNT=700; [ "$LONG" = 1 ] && COUNT=20000
python3 -c "$REFERENCE_TREE" "$S/ref" "$COUNT" || { echo "FAIL reference-tree"; exit 1; }
have setfacl && setfacl -m u:1:r,g:2:rw "$S/ref/sparse" && setfacl -d -m u:1:rx "$S/ref/setgid"
FLAGS=-aHS
rsync --version | grep -q ' ACLs' && FLAGS+=A
rsync --version | grep -q ' xattrs' && FLAGS+=X
export FLAGS
case_ copy <<'END'
rsync $FLAGS "$S/ref/" "$W/a/"
END
case_ no-difference <<'END'
rsync ${FLAGS}c --delete -ni "$S/ref/" "$W/a/" > "$S/differences"
test ! -s "$S/differences" || { head -20 "$S/differences"; false; }
END
case_ inside-the-mount <<'END'
rsync $FLAGS "$W/a/" "$W/b/"
rsync ${FLAGS}c --delete -ni "$S/ref/" "$W/b/" > "$S/differences"
test ! -s "$S/differences" || { head -20 "$S/differences"; false; }
END
case_ holes-stay-holes <<'END'
test "$(stat -c %b "$W/a/sparse")" -lt 4096
END
case_ update <<'END'
echo more >> "$S/ref/d1/e1/f1"; rm -r "$S/ref/d3"
rsync $FLAGS --delete --inplace "$S/ref/" "$W/a/"
rsync ${FLAGS}c --delete -ni "$S/ref/" "$W/a/" > "$S/differences"
test ! -s "$S/differences" || { head -20 "$S/differences"; false; }
END
