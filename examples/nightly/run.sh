#!/bin/sh
# A nightly job under a lease, from the authority to a job that wakes up too late. The
# answers of the fence are those of job.sh; it holds the one statement that is guarded.
# LASTWORD names the program; without it, it is built.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
authority='' late=''

cleanup() {
	[ -z "$late" ] || kill -KILL "$late" 2>/dev/null || : # it may be stopped
	[ -z "$authority" ] || kill "$authority" 2>/dev/null || :
	wait
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() { printf '\n== %s\n' "$*"; }
fail() {
	printf 'not as expected: %s\n' "$*" >&2
	exit 1
}
# expect CODE COMMAND…: the command ends with this exit code.
expect() {
	want=$1
	shift
	got=0
	"$@" || got=$?
	[ "$got" = "$want" ] || fail "exit code $got, want $want: $*"
}
# until_is COMMAND…: waits, not longer than a minute.
until_is() {
	n=0
	until "$@"; do
		n=$((n + 1))
		[ "$n" -lt 600 ] || fail "waited too long for: $*"
		sleep 0.1
	done
}

mkdir "$work/bin"
if [ "${LASTWORD:-}" ]; then
	ln -s "$LASTWORD" "$work/bin/lastword"
else
	(cd "$here/../.." && CGO_ENABLED=0 go build -buildvcs=false -o "$work/bin/lastword" ./cmd/lastword)
fi
PATH="$work/bin:$PATH"
DATABASE="$work/shop.db"
TMPDIR="$work"
export PATH DATABASE TMPDIR

lastword serve --store "sqlite:$work/authority.db" --domain shop --grpc 127.0.0.1:0 >"$work/ready" 2>"$work/log" &
authority=$!
until_is grep -q '^ready ' "$work/ready"
LASTWORD_AUTHORITY=$(sed -n 's/^ready //p' "$work/ready")
export LASTWORD_AUTHORITY

say 'a database with sales, and the tables of its fence'
lastword fence init "sqlite:$DATABASE"
TABLES="CREATE TABLE sale (day TEXT, amount INTEGER);
CREATE TABLE report (day TEXT PRIMARY KEY, total INTEGER);
INSERT INTO sale VALUES ('2026-07-18', 100), ('2026-07-18', 20), ('2026-07-19', 3), ('2026-07-20', 4)"
export TABLES
# shellcheck disable=SC2016 # the command's own shell expands it, under the lease
expect 0 lastword exec setup -- sh -c \
	'lastword fence apply "sqlite:$DATABASE" setup --grant "$LASTWORD_GRANT_FILE" --op tables --sql "$TABLES"'

say 'the job of one night: acquire, run, release'
expect 0 lastword exec nightly/report -- "$here/job.sh" 2026-07-18

say 'the same night once more, because cron fired twice: REPLAYED, one report'
expect 0 lastword exec nightly/report -- "$here/job.sh" 2026-07-18

say 'while one host is at it, another one is told so at once: exit code 121'
expect 0 lastword exec nightly/report -- sh -c '
	code=0; lastword exec nightly/report -- echo "this does not run" || code=$?; [ "$code" = 121 ]'

say 'a host freezes while it holds the lease; another one waits, takes over and writes'
FREEZE="$work/host" lastword exec nightly/report --ttl 2s -- "$here/job.sh" 2026-07-19 >"$work/late" 2>&1 &
late=$!
until_is test -e "$work/host.frozen"
expect 0 lastword exec nightly/report --wait 1m -- "$here/job.sh" 2026-07-20

say 'it thaws: its write comes too late and is refused by the database, exit code 124'
: >"$work/host.thaw"
until_is grep -q STALE_OWNER "$work/late"
kill -CONT "$late"
code=0
wait "$late" || code=$?
late=
cat "$work/late"
[ "$code" = 122 ] || [ "$code" = 124 ] || fail "the frozen job ended with $code"

say 'what the fence has seen'
lastword fence status "sqlite:$DATABASE" nightly/report
lastword fence lookup "sqlite:$DATABASE" nightly/report --op report-2026-07-18
lastword fence lookup "sqlite:$DATABASE" nightly/report --op report-2026-07-20
expect 1 lastword fence lookup "sqlite:$DATABASE" nightly/report --op report-2026-07-19

say 'done: two reports, one for each night, and none of a job that had lost its lease'
