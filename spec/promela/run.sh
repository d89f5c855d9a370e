#!/bin/sh
# Checks lastword.pml with spin: the right system, then the broken ones. Exits 0 when
# the first has no violation with every assertion on, and each of the others has the one
# that it must have: the assertion that spin names, not any.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v spin >/dev/null && command -v gcc >/dev/null || {
	echo 'the Promela model needs spin and gcc; on Debian, as root: apt-get install spin gcc libc6-dev' >&2
	exit 1
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

flags='revoked_generation_overwrite unauthorized_accept number_issued_twice two_effects request_granted_twice'

# asserted FLAGS: each has an assertion in the checker that was just made.
asserted() {
	for flag in $1; do
		grep -q "spin_assert(.*$flag" pan.m || { echo "no assertion looks at $flag" >&2; exit 1; }
	done
}

# check NAME WANTED SPIN-FLAGS: WANTED is the flag that must be raised, or "none".
check() {
	name=$1 wanted=$2
	shift 2
	spin "$@" -a "$here/lastword.pml" >spin.out 2>&1 || { cat spin.out >&2; exit 1; }
	if [ "$wanted" = none ]; then asserted "$flags"; else asserted "$wanted"; fi
	gcc -O2 -DSAFETY -DNOFAIR -DCOLLAPSE -o pan pan.c
	./pan -m200000 -w25 >pan.out 2>&1 || true
	grep -q 'max search depth too small' pan.out && { cat pan.out >&2; echo 'the search was cut off' >&2; exit 1; }
	states=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' pan.out)
	errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out)
	[ -n "$states" ] && [ -n "$errors" ] || { cat pan.out >&2; exit 1; }
	found=none
	if [ "$errors" != 0 ]; then
		violated=$(sed -n 's/^pan:.*assertion violated *\(.*\) (at depth.*/\1/p' pan.out)
		found=
		for flag in $flags; do
			case $violated in *"$flag"*) found="$found$flag" ;; esac
		done
		[ "$found" = "$wanted" ] || { cat pan.out >&2; echo "$name: want $wanted, spin names: $violated" >&2; exit 1; }
	fi
	printf '%-12s %-30s %9s states\n' "$name" "$found" "$states"
	[ "$found" = "$wanted" ] || { echo "$name: want $wanted" >&2; exit 1; }
}

check none none
check no-fence revoked_generation_overwrite -DNO_FENCE -DONLY=revoked_generation_overwrite
check split unauthorized_accept -DSPLIT -DONLY=unauthorized_accept
check rollback revoked_generation_overwrite -DROLLBACK -DONLY=revoked_generation_overwrite
check rollback number_issued_twice -DROLLBACK -DONLY=number_issued_twice
check forgets request_granted_twice -DFORGETS -DONLY=request_granted_twice
check no-receipt two_effects -DNO_RECEIPT -DONLY=two_effects
