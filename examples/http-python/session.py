#!/usr/bin/env python3
"""A session with an authority over HTTP, with nothing but Python's standard library.

Two owners want one resource: the first holds it, the second is refused, waits, and is
woken up when the first has completed its work and released. A watch looks on.

    lastword dev                                    # in another terminal
    python3 examples/http-python/session.py

What matters to a program of your own: 64-bit numbers are strings and stay strings; a
problem says by its outcome whether nothing was done or nobody knows; after "nobody
knows" the very same request is repeated, request_id included. Holding a lease and
writing safely are two things: send the grant along with every write, to a resource that
checks it.
"""

import argparse
import base64
import http.client
import json
import sys
import threading
import time
import urllib.parse
import uuid


class Refused(Exception):
    """The authority said no: nothing was done."""

    def __init__(self, problem):
        super().__init__(f"{problem['reason']}: {problem.get('detail', '')}")
        self.problem = problem


class Unknown(Exception):
    """Nobody knows whether it was done: repeat it unchanged."""


class Authority:
    """The calls, one connection each. Safe to use from several threads."""

    def __init__(self, address, timeout=5.0):
        self.address, self.timeout = address, timeout

    def post(self, call, patience=0.0, **request):
        """One call that changes something; request has the names of the schema."""
        body = json.dumps(request)
        for last in (False, True):
            try:
                return self._ask("POST", f"/v1/{call}", body, self.timeout + patience)
            except Unknown:
                if last:
                    raise  # a program of your own tries for longer
                time.sleep(0.1)

    def get(self, call, **query):
        """One call that only reads."""
        return self._ask("GET", f"/v1/{call}?{urllib.parse.urlencode(query)}", None, self.timeout)

    def _ask(self, method, path, body, timeout):
        connection = http.client.HTTPConnection(self.address, timeout=timeout)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unknown(f"no answer to {method} {path}: {error}") from error
        finally:
            connection.close()
        if response.status == 200:
            return answer
        if answer.get("outcome") == "not_done":
            raise Refused(answer)
        raise Unknown(answer.get("detail", "no outcome"))

    def watch(self, prefix):
        """Yields one object for each line, for as long as the caller wants."""
        connection = http.client.HTTPConnection(self.address)
        try:
            connection.request("GET", "/v1/watch?" + urllib.parse.urlencode({"prefix": prefix}))
            response = connection.getresponse()
            if response.status != 200:
                raise Refused(json.loads(response.read()))
            for line in response:
                seen = json.loads(line)
                if "reason" in seen:
                    raise Refused(seen)
                yield seen
        finally:
            connection.close()


class Onlooker:
    """Remembers what a watch shows of one resource, in a thread of its own."""

    def __init__(self, authority, resource):
        self.seen, self.changed, self.complete, self.error = [], threading.Condition(), False, None
        threading.Thread(target=self._look, args=(authority, resource), daemon=True).start()

    def _look(self, authority, resource):
        try:
            for line in authority.watch(resource):
                with self.changed:
                    self.complete = self.complete or line["complete"]
                    if line["status"]:
                        self.seen.append(line["status"])
                    self.changed.notify_all()
        except (Refused, OSError, http.client.HTTPException, ValueError) as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()

    def wait_for(self, what, test, timeout=60.0):
        with self.changed:
            if not self.changed.wait_for(lambda: self.error or test(self), timeout) or self.error:
                raise Unknown(f"the watch does not show {what}: {self.error or self.seen}")
            return self.seen[-1] if self.seen else None


def reference(tenure):
    """What renew, complete and release want to be told."""
    return {name: tenure[name] for name in ("resource", "owner", "request_id", "lease_id", "fence")}


def summary(status):
    """What a watch or a status shows, as far as it does not depend on the time."""
    return [status["state"], (status["holder"] or status["last"] or {"fence": "0"})["fence"], status["revision"]]


def session(authority, resource, attempt, tell):
    """The session. Returns the numbers that it saw."""
    saw = {}
    onlooker = Onlooker(authority, resource)
    onlooker.wait_for("that it is complete", lambda o: o.complete)

    first = authority.post("acquire", resource=resource, owner="a", request_id=attempt + "a1", ttl="60s")["tenure"]
    saw["acquire"] = [first["fence"], first["revision"]]
    tell(f"a holds {resource} with fence {first['fence']}")
    seen = onlooker.wait_for("the first holder", lambda o: o.seen and o.seen[-1]["state"] == "HELD")
    saw["watch_held"] = summary(seen)

    try:
        authority.post("acquire", resource=resource, owner="b", request_id=attempt + "b1", ttl="60s")
        sys.exit("b was granted what a holds")
    except Refused as refusal:
        saw["held"] = [refusal.problem["reason"], refusal.problem["holder"], refusal.problem["fence"]]
        tell(f"b is refused: {refusal}")

    woken = []

    def wait_for_it():
        try:
            woken.append(authority.post("acquire", patience=60, resource=resource, owner="b", request_id=attempt + "b2", ttl="60s", wait="60s"))
        except (Refused, Unknown) as error:
            woken.append(error)

    waiter = threading.Thread(target=wait_for_it, daemon=True)
    waiter.start()
    while not woken and authority.get("status", resource=resource)["status"]["waiters"] != 1:
        time.sleep(0.01)
    tell("b waits")

    renewed = authority.post("renew", **reference(first))["tenure"]
    saw["renew"] = [renewed["fence"], renewed["revision"], renewed["remaining"]]
    authority.post("complete", **reference(first), result=base64.b64encode(b"done").decode())
    authority.post("release", **reference(first))
    tell("a has renewed, completed and released")

    waiter.join(60)
    if not woken or isinstance(woken[0], Exception):
        raise Unknown(f"b was not woken up: {woken}")
    second, previous = woken[0]["tenure"], woken[0]["tenure"]["previous"]
    saw["waited"] = [second["fence"], second["waited"], previous["state"], previous["fence"], previous["completed"], previous["result"]]
    tell(f"b holds it with fence {second['fence']}; before it: {previous['state']}, result {base64.b64decode(previous['result']).decode()!r}")
    # After a wait nobody knows how much is left of the lease: a renewal tells (R25).
    authority.post("renew", **reference(second))
    authority.post("release", **reference(second))

    status = authority.get("status", resource=resource)["status"]
    saw["status"] = summary(status) + [status["next_fence"]]
    seen = onlooker.wait_for("the end", lambda o: o.seen[-1]["revision"] == status["revision"])
    saw["watch_end"] = summary(seen)
    tell(f"the watch showed it: {' '.join(summary(seen))}")
    return saw


def main():
    options = argparse.ArgumentParser(description="A session with an authority over HTTP.")
    options.add_argument("--address", default="127.0.0.1:7421", help="of HTTP (default 127.0.0.1:7421)")
    options.add_argument("--resource", default="session/python", help="what the two owners want")
    options.add_argument("--attempt", default=None, help="prefix of the request ids (default: a new one)")
    options.add_argument("--read", help="another resource to ask the status of")
    options.add_argument("--json", action="store_true", help="print the numbers as one JSON object and nothing else")
    chosen = options.parse_args()
    authority = Authority(chosen.address)
    attempt = uuid.uuid4().hex + "-" if chosen.attempt is None else chosen.attempt
    try:
        saw = session(authority, chosen.resource, attempt, (lambda line: None) if chosen.json else print)
        if chosen.read:
            saw["read"] = summary(authority.get("status", resource=chosen.read)["status"])
    except (Refused, Unknown) as error:
        sys.exit(f"session.py: {error}")
    if chosen.json:
        print(json.dumps(saw))


if __name__ == "__main__":
    main()
