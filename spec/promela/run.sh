#!/bin/sh
# Checks lastword.pml with spin: the right system, then the three broken ones. Exits 0
# when the first has no violation and each of the others has the one that it must have.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v spin >/dev/null && command -v gcc >/dev/null || {
	echo 'the Promela model needs spin and gcc; on Debian, as root: apt-get install spin gcc libc6-dev' >&2
	exit 1
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# check NAME WANTED SPIN-FLAGS: WANTED is the flag that must be raised, or "none".
check() {
	name=$1 wanted=$2
	shift 2
	spin "$@" -a "$here/lastword.pml" >spin.out 2>&1 || { cat spin.out >&2; exit 1; }
	gcc -O2 -DSAFETY -DNOFAIR -DCOLLAPSE -o pan pan.c
	./pan -m200000 -w25 >pan.out 2>&1 || true
	grep -q 'max search depth too small' pan.out && { cat pan.out >&2; echo 'the search was cut off' >&2; exit 1; }
	states=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' pan.out)
	errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out)
	[ -n "$states" ] && [ -n "$errors" ] || { cat pan.out >&2; exit 1; }
	found=none
	if [ "$errors" != 0 ]; then
		grep -q 'assertion violated' pan.out || { cat pan.out >&2; exit 1; }
		found=$wanted
		[ "$wanted" != none ] || { cat pan.out >&2; exit 1; }
	fi
	printf '%-12s %-30s %9s states\n' "$name" "$found" "$states"
	[ "$found" = "$wanted" ] || { echo "$name: want $wanted" >&2; exit 1; }
}

check none none
check no-fence revoked_generation_overwrite -DNO_FENCE -DONLY=revoked_generation_overwrite
check split unauthorized_accept -DSPLIT -DONLY=unauthorized_accept
check rollback revoked_generation_overwrite -DROLLBACK -DONLY=revoked_generation_overwrite
check rollback number_issued_twice -DROLLBACK -DONLY=number_issued_twice
