#!/bin/sh
# The job itself. It runs under `lastword exec`, which has put the lease into its
# environment, and writes through the fence. The operation id is the business intent:
# the report of this day, whoever makes it and however often. Nothing of the attempt
# (the fence, a time) belongs into the statement: a repetition must be the same one.
set -eu
day=$1

if [ "${FREEZE:-}" ]; then
	# Stands for a host that freezes: the job goes on later, the program that renews
	# its lease does not.
	kill -STOP "$PPID"
	: >"$FREEZE.frozen"
	until [ -e "$FREEZE.thaw" ]; do sleep 0.1; done
fi

lastword fence apply "sqlite:$DATABASE" "$LASTWORD_RESOURCE" --grant "$LASTWORD_GRANT_FILE" --op "report-$day" \
	--sql "INSERT INTO report (day, total) SELECT '$day', sum(amount) FROM sale WHERE day = '$day'"
