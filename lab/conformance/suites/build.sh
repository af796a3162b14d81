# A project of many small sources, a library, a program that uses it, dependency files, and a second build that has nothing
# to do.
case_ generate <<'END'
mkdir project && cd project && mkdir src include
for i in $(seq 120); do
    echo "int part_$i(int);" > "include/part_$i.h"
    { echo "#include \"part_$i.h\""; echo "#include <stdio.h>"; echo "int part_$i(int x) { return x * $i + (x > 1000000 ? printf(\"%d\", x) : 0); }"; } > "src/part_$i.c"
    echo "#include \"part_$i.h\"" >> include/all.h
done
{ echo '#include "all.h"'; echo '#include <stdio.h>'; echo 'int main(void) { long sum = 0;'
  for i in $(seq 120); do echo "sum += part_$i(3);"; done
  echo 'printf("%ld\n", sum); return 0; }'; } > src/main.c
cat > Makefile <<'MAKE'
parts := $(patsubst src/%.c,out/%.o,$(wildcard src/part_*.c))
out/program: out/main.o out/libparts.a
	$(CC) -o $@ out/main.o -Lout -lparts
out/libparts.a: $(parts)
	$(AR) rcs $@ $^
out/%.o: src/%.c | out
	$(CC) -O1 -Iinclude -MMD -c -o $@ $<
out:
	mkdir -p out
clean:
	rm -rf out
-include $(wildcard out/*.d)
MAKE
END
case_ make <<'END'
cd project; make -s -j2; test "$(out/program)" = 21780
END
case_ nothing-left-to-do <<'END'
cd project; make -q out/program
END
case_ one-header-changed <<'END'
cd project; sleep 0.02; touch include/part_7.h; ! make -q out/program; make -s -j2; make -q out/program
END
case_ clean-and-again <<'END'
cd project; make -s clean; test ! -e out; make -s -j2; test "$(out/program)" = 21780
END
[ "$LONG" = 1 ] || exit 0
SOURCE=$(ls /usr/src/linux-source-*.tar.xz 2>/dev/null | tail -1)
if [ -z "$SOURCE" ] || ! have flex || ! have bison || ! have bc || ! have xz; then
    echo "SKIP kernel needs /usr/src/linux-source-*.tar.xz, flex, bison, bc, xz (apt install linux-source)"
    exit 0
fi
export SOURCE
# The same configuration, time and builder everywhere, so that the same sources give the same bytes.
cat > "$S/kernel" <<'END'
set -euo pipefail
export KBUILD_BUILD_TIMESTAMP=@1000000000 KBUILD_BUILD_USER=nobody KBUILD_BUILD_HOST=nowhere KBUILD_BUILD_VERSION=1
cd linux-source-*
make -s tinyconfig
make -s -j2
# Objects of the real mode name the folder they were built in, on any file system; vmlinux does not.
find . -name '*.o' -o -name '*.a' -o -name vmlinux -o -name System.map -o -name .config | grep -vE '/x86/(boot|realmode/rm)/' | sort | xargs sha256sum > ../built
test "$(wc -l < ../built)" -gt 300
END
case_ kernel-unpack <<'END'
tar -xf "$SOURCE"; test "$(tar -tf "$SOURCE" | wc -l)" -eq "$(find linux-source-* | wc -l)"
END
case_ kernel-compare <<'END'
tar -df "$SOURCE"
END
case_ kernel-tinyconfig <<'END'
bash "$S/kernel"; test -s linux-source-*/vmlinux
END
case_ kernel-same-bytes-as-elsewhere <<'END'
mkdir "$S/elsewhere"; (cd "$S/elsewhere"; tar -xf "$SOURCE"; bash "$S/kernel"); cmp built "$S/elsewhere/built"
END
case_ kernel-clean <<'END'
cd linux-source-*; make -s mrproper; cd ..; tar -df "$SOURCE"
END
