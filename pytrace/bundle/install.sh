#!/bin/sh
# Installs pytrace from this bundle, without any network: sh install.sh [FOLDER], by default ./pytrace. PYTHON names the Python
# to use. The folder gets Python packages, the models, and a program `pytrace`; nothing outside of it is touched.
set -eu

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

bundle=$(cd "$(dirname "$0")" && pwd)
target=${1:-pytrace}
[ $# -le 1 ] || fail "give one folder to install into, or none for ./pytrace"
case $target in /*) ;; *) target=$(pwd)/$target ;; esac
case $target in *\'*) fail "the folder's name has a quotation mark; name another" ;; esac
[ ! -e "$target" ] || fail "$target is there already; name a folder that is not, or remove it"

command -v sha256sum > /dev/null || fail "sha256sum is missing, which checks the bundle; install coreutils"
(cd "$bundle" && sha256sum --check --strict --quiet SHA256SUMS) \
  || fail "files of the bundle are damaged or missing, as named above; copy the bundle again"
. "$bundle/bundle.env"

python=${PYTHON:-}
for name in "python$BUNDLE_PYTHON" python3 python; do
  [ -n "$python" ] || python=$(command -v "$name" || true)
done
[ -n "$python" ] || fail "there is no Python here; install Python $BUNDLE_PYTHON, or name it: PYTHON=/path/to/python sh install.sh"
found=$("$python" -c 'import platform, sys; print("%d.%d %s" % (*sys.version_info[:2], platform.machine()))') \
  || fail "$python does not run; name another Python: PYTHON=/path/to/python sh install.sh"
[ "$found" = "$BUNDLE_PYTHON $BUNDLE_MACHINE" ] \
  || fail "the bundle is for Python and machine '$BUNDLE_PYTHON $BUNDLE_MACHINE', and $python is '$found'; make a bundle on a machine like this one"
"$python" - "$BUNDLE_LIBC" << 'END' || fail "the bundle needs ${BUNDLE_LIBC}, and this machine's C library is older; make a bundle on a machine like this one"
import platform, sys

need, _, version = sys.argv[1].partition(" ")
have, here = platform.libc_ver()
numbers = lambda text: [int(part) for part in text.split(".") if part.isdigit()]
sys.exit(need != have or numbers(here) < numbers(version) if need else 0)
END

trap 'rm -rf "$target"; echo "install.sh: nothing was installed" >&2' EXIT
trap 'exit 130' INT TERM HUP
# Neither Debian's python3-venv nor any pip need be there: a wheel of pip runs from where it is.
small_model=$(cd "$bundle/wheels" && ls | sed -n 's/^pytrace_edge-.*/pytrace-edge/p')
"$python" -m venv --without-pip "$target/python" || fail "$python has no module venv; install Python's standard library whole"
"$target/python/bin/python" "$(ls "$bundle"/wheels/pip-*.whl)/pip" --isolated --disable-pip-version-check install --quiet \
  --no-index --no-cache-dir --find-links "$bundle/wheels" "$BUNDLE_REQUIREMENT==$BUNDLE_VERSION" $small_model
cp -R "$bundle/home" "$bundle/example" "$target/"
cat > "$target/pytrace" << END
#!/bin/sh
# The models are beside this program, unless PYTRACE_HOME says otherwise.
PYTRACE_HOME=\${PYTRACE_HOME:-'$target/home'} exec '$target/python/bin/pytrace' "\$@"
END
chmod +x "$target/pytrace"
"$target/pytrace" --version
trap - EXIT

question="Who founded the workshop that built the Sable Heron?"
if [ "$BUNDLE_ASKS" = yes ]; then
  echo "$question"
  "$target/pytrace" ask "$question" --docs "$target/example" --method trace-doc --explain
fi
echo "installed in $target ($(du -sh "$target" | cut -f1)); '$target/pytrace doctor' says what it can do"
