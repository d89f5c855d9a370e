#!/usr/bin/python3
"""A worker that writes through lastword's fence with nothing but its own driver.

    worker.py DSN RESOURCE FENCE LEASE_ID SEQ OPERATION BODY

RESOURCE is doc/{id}. FENCE and LEASE_ID are of the grant that the worker holds; the
function lastword.apply believes them, so this protects against mistakes, and against
liars only where the right to call it is a verifying service's.
"""

import hashlib
import json
import sys

import psycopg2

# The verdicts that lastword.apply raises. Any other error is not an answer of the fence.
VERDICTS = {
    "LW100": "REPLAYED", "LW101": "CONFLICT", "LW102": "STALE_OWNER", "LW103": "RECEIPT_EXPIRED",
    "LW104": "OUT_OF_ORDER", "LW105": "ROOT_MISMATCH", "LW106": "FENCE_REGRESSION", "LW107": "FENCE_JUMP",
    "LW108": "UNVERIFIED", "LW109": "STATUS_UNAVAILABLE",
}

APPLY = """SELECT verdict, number FROM lastword.apply(
    domain => 'test', resource => %(resource)s, owner => 'python', fence => %(fence)s, lease_id => %(lease)s,
    grant_digest => '', root => '', seq => %(seq)s, operation => %(operation)s, payload => %(payload)s,
    status_mode => 'fence-only')"""


def note(conn, detail, body):
    """Writes the evidence of a refusal, in a transaction of its own: the one that was
    refused is rolled back. The verdict stands whatever becomes of this."""
    try:
        with conn, conn.cursor() as cur:
            cur.execute("SELECT lastword.refused(%s, %s)", (detail, body.encode()))
    except psycopg2.Error as e:
        print("the refusal was not counted:", e, file=sys.stderr)


def main(dsn, resource, fence, lease, seq, operation, body):
    conn = psycopg2.connect(dsn)
    try:
        # One transaction: the check, then the business statements, then COMMIT. Until
        # COMMIT has returned nothing is decided; if it is lost, run all of it again.
        with conn, conn.cursor() as cur:
            cur.execute(APPLY, {
                "resource": resource, "fence": int(fence), "lease": lease, "seq": int(seq), "operation": operation,
                "payload": "sha256:" + hashlib.sha256(body.encode()).hexdigest(),
            })
            verdict, number = cur.fetchone()
            cur.execute("UPDATE doc SET body = %s WHERE id = %s", (body, resource.removeprefix("doc/")))
    except psycopg2.Error as e:
        verdict = VERDICTS.get(e.pgcode)
        if verdict is None:
            raise
        note(conn, e.diag.message_detail, body)
        if verdict == "REPLAYED":  # it had its effect before
            print(verdict, json.loads(e.diag.message_detail)["receipt"]["operation"])
            return 0
        print(verdict)
        return 1
    finally:
        conn.close()
    print(verdict, number)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
