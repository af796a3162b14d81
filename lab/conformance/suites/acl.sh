# Access lists by the words of acl(5): on the mount, and over NFS in a guest, where the lists travel by a program of their own.
export AS_DAEMON="setpriv --reuid=daemon --regid=nogroup --clear-groups" AS_GAMES="setpriv --reuid=games --regid=nogroup --clear-groups"
case_ a-named-user <<'END'
echo secret > file; chmod 600 file
! $AS_DAEMON cat file
setfacl -m u:daemon:r file
test "$($AS_DAEMON cat file)" = secret
! $AS_GAMES cat file
! $AS_DAEMON setfacl -m u:games:r file
END
case_ a-named-group <<'END'
echo secret > shared; chmod 600 shared
setfacl -m g:nogroup:rw shared
$AS_GAMES bash -c 'echo more >> shared'
test "$(wc -l < shared)" = 2
END
case_ chmod-moves-the-mask <<'END'
chmod g= file
! $AS_DAEMON cat file
getfacl -c file | grep -qE '^user:daemon:r--\s+#effective:---$'
chmod g=r file
$AS_DAEMON cat file
END
case_ a-default-list <<'END'
mkdir -m 700 folder; setfacl -d -m u:daemon:rwx,g::-,o::- folder
(umask 077; echo a > folder/file; mkdir folder/inner)
getfacl -c folder/file | grep -qE '^user:daemon:rwx\s+#effective:rw-$'
getfacl -c folder/inner | grep -q '^default:user:daemon:rwx$'
! $AS_DAEMON cat folder/file
setfacl -m u:daemon:x folder
$AS_DAEMON bash -c 'test "$(cat folder/file)" = a && echo b > folder/inner/new'
setfacl -k folder
mkdir folder/later; ! getfacl -c folder/later | grep default
END
case_ copies-keep-lists <<'END'
cp -p file copy; diff <(getfacl -c file) <(getfacl -c copy)
mkdir packed; tar --acls -cf - file folder | tar --acls -xf - -C packed
diff <(getfacl -R file folder) <(cd packed && getfacl -R file folder)
END
case_ many-entries <<'END'
touch many
setfacl -m "$(seq -f 'u:%.0f:r' -s , 30000 30299)" many
test "$(getfacl -cn many | grep -c '^user:3')" = 300
END
case_ taken-away <<'END'
setfacl -b file
test "$(getfacl -c file | grep -c .)" = 3
! $AS_DAEMON cat file
END
