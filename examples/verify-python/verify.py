#!/usr/bin/env python3
"""Verify lastword grants and status proofs with a stock library: PyJWT.

    verify.py --bundle bundle.json --domain D --resource R [--owner O] GRANT
    verify.py --vectors grant.json proof.json bundle.json

On Debian: apt-get install python3-jwt python3-cryptography. The format, and the
steps in their order, are in spec/GRANT.md. The library checks the signature; the
strict profile is what the functions here add, because a stock library alone takes
one of two members, knows no epochs, and lets the token say too much about itself.
"""

import argparse
import base64
import hashlib
import json
import re
import sys
import unicodedata

import jwt

MAX_BYTES, MAX_BUNDLE_BYTES, MAX_KEYS = 4096, 64 << 10, 64
MAX_NUMBER, MAX_EPOCH, COUNTER_BITS = 2**53 - 1, 2**20 - 1, 33
LAST_SECOND, MAX_STATUS_LIFE = 253402300799, 60

GRANT_TYPE, STATUS_TYPE = "lockgrant.v1+jwt", "leasestatus.v1+jwt"
HEADER = {"alg": str, "kid": str, "typ": str}
GRANT = {
    "class": str, "epoch": int, "fence": int, "iat": int, "iss": str, "jti": str, "policy": int,
    "request": str, "resource": str, "revision": int, "root": str, "sub": str, "ttl_ns": int, "version": int,
}
STATUS = {
    "epoch": int, "exp": int, "fence": int, "grant": str, "iat": int, "iss": str,
    "lease": str, "resource": str, "revision": int, "state": str, "version": int,
}


class Refused(Exception):
    """A token is not believed. Its text is the class of failure."""


def need(condition, failure):
    if not condition:
        raise Refused(failure)


# ---- shape ---------------------------------------------------------------------


def decode(segment):
    """Strict base64url: no padding, no other alphabet, no bits left over."""
    need(re.fullmatch(r"[A-Za-z0-9_-]*", segment) and len(segment) % 4 != 1, "shape")
    raw = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    need(base64.urlsafe_b64encode(raw).rstrip(b"=").decode() == segment, "shape")
    return raw


def no_duplicates(pairs):
    need(len({name for name, _ in pairs}) == len(pairs), "shape")
    return dict(pairs)


def refuse_number(_):
    raise Refused("shape")


def read_json(raw):
    try:
        return json.loads(
            raw.decode("utf-8"), object_pairs_hook=no_duplicates,
            parse_float=refuse_number, parse_constant=refuse_number,
        )
    except (ValueError, RecursionError):
        raise Refused("shape") from None


def read_object(raw, members):
    """One JSON object with exactly these members, in its only spelling (RFC 8785)."""
    value = read_json(raw)
    need(type(value) is dict and value.keys() == members.keys(), "shape")
    for name, kind in members.items():
        need(type(value[name]) is kind, "shape")  # a bool is no int here
        need(kind is not int or 0 <= value[name] <= MAX_NUMBER, "shape")
    again = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    need(again.encode("utf-8", "surrogatepass") == raw, "shape")
    return value


def is_id(text):
    return 0 < len(text.encode()) <= 512 and not any(unicodedata.category(c) == "Cc" for c in text)


def is_resource(text):
    return is_id(text) and all(s not in ("", ".", "..") for s in text.split("/"))


def is_digest(text):
    return re.fullmatch(r"sha256:[0-9a-f]{64}", text) and text != "sha256:" + 64 * "0"


def check_grant(c):
    need(1 <= c["fence"], "shape")
    need(all(is_id(c[name]) for name in ("class", "iss", "jti", "request", "sub")), "shape")
    need(is_resource(c["resource"]) and (c["root"] == "" or is_digest(c["root"])), "shape")
    need(c["ttl_ns"] >= 1 and c["iat"] <= LAST_SECOND, "shape")


def check_status(c):
    need(1 <= c["fence"], "shape")
    need(is_id(c["iss"]) and is_id(c["lease"]) and is_resource(c["resource"]) and is_digest(c["grant"]), "shape")
    need(c["state"] in ("HELD", "PENDING"), "shape")
    need(c["exp"] <= LAST_SECOND and 1 <= c["exp"] - c["iat"] <= MAX_STATUS_LIFE, "shape")


# ---- trust ---------------------------------------------------------------------


class Bundle:
    """A trust bundle. It is fetched over a pinned channel, or copied by hand."""

    def __init__(self, raw):
        need(len(raw) <= MAX_BUNDLE_BYTES and depth(raw) <= 4, "shape")
        b = read_json(raw)
        need(type(b) is dict and type(b.get("keys")) is list, "shape")
        self.domain, self.sequence = b.get("lastword_domain"), b.get("spiffe_sequence")
        self.current, self.minimum = b.get("lastword_current_epoch"), b.get("lastword_minimum_epoch")
        need(type(self.domain) is str and is_id(self.domain), "value")
        for number in (self.sequence, self.current, self.minimum, b.get("spiffe_refresh_hint", 0)):
            need(type(number) is int and 0 <= number <= MAX_NUMBER, "value")
        need(self.minimum <= self.current <= MAX_EPOCH, "value")
        need(b.get("spiffe_refresh_hint", 0) <= 2**63 // 10**9, "value")
        self.keys = {}
        names = [self.zone_key(k) for k in b.get("lastword_zone_keys", [])]
        for k in b["keys"]:
            need(type(k) is dict and k.get("kty") != "oct" and "d" not in k, "secret")
            if k.get("kty") == "OKP" and k.get("crv") == "Ed25519":
                names.append(k.get("kid"))
                self.keys[k.get("kid")] = self.key(k)
        need(len(names) <= MAX_KEYS and len(set(names)) == len(names), "key")

    @staticmethod
    def zone_key(k):
        """A key for one trust zone is only named: this program was not given it."""
        need("k" not in k, "secret")
        need(k.get("alg") == "HS256" and len(decode(k.get("kid", ""))) == 32, "key")
        return k["kid"]

    @staticmethod
    def key(k):
        need(k.get("alg") == "EdDSA" and type(k.get("x")) is str and len(decode(k["x"])) == 32, "key")
        thumb = hashlib.sha256(('{"crv":"Ed25519","kty":"OKP","x":"%s"}' % k["x"]).encode()).digest()
        need(k.get("kid") == base64.urlsafe_b64encode(thumb).rstrip(b"=").decode(), "key")
        first, last = k.get("lastword_first_epoch", 0), k.get("lastword_last_epoch")
        need(type(first) is int and first >= 0 and (last is None or type(last) is int and last >= first), "key")
        return {"alg": "EdDSA", "key": jwt.PyJWK(k).key, "first": first, "last": last}


def depth(raw):
    deepest = level = 0
    for c in re.sub(rb'"(?:[^"\\]|\\.)*"', b"", raw):
        level += (c in b"{[") - (c in b"}]")
        deepest = max(deepest, level)
    return deepest


def open_token(token, typ, members, check, bundle):
    """Steps 1 to 7, up to the issuer epoch. Gives the claims and the digest."""
    need(len(token.encode()) <= MAX_BYTES and token.count(".") == 2, "shape")
    head, body, seal = token.split(".")
    decode(seal)
    header = read_object(decode(head), HEADER)
    need(header["typ"] == typ, "type")
    c = read_object(decode(body), members)
    need(c["version"] == 1, "type")
    check(c)
    key = bundle.keys.get(header["kid"])
    need(key, "key")
    need(header["alg"] == key["alg"], "algorithm")  # the key's, never the token's
    try:
        jwt.PyJWS().decode(token, key["key"], algorithms=[key["alg"]])
    except jwt.InvalidTokenError:
        raise Refused("signature") from None
    need(c["iss"] == bundle.domain, "domain")
    of_fence = c["fence"] >> COUNTER_BITS
    need(c["epoch"] == of_fence if typ == GRANT_TYPE else of_fence <= c["epoch"] <= MAX_EPOCH, "epoch")
    need(key["first"] <= c["epoch"] and (key["last"] is None or c["epoch"] <= key["last"]), "epoch")
    need(bundle.minimum <= of_fence and c["epoch"] <= bundle.current, "epoch")
    return c, "sha256:" + hashlib.sha256((head + "." + body).encode()).hexdigest()


def verify_grant(token, bundle, resource, owner="", root=None, cls="write", policy=0, minimum_policy=0):
    """Steps 1 to 10. An owner is the authenticated caller; "" compares nothing."""
    c, digest = open_token(token, GRANT_TYPE, GRANT, check_grant, bundle)
    need(c["resource"] == resource, "binding")
    need(owner in ("", c["sub"]) and root in (None, c["root"]), "binding")
    need(cls in ("advance", c["class"]), "class")
    need(policy in (0, c["policy"]) and c["policy"] >= minimum_policy, "policy")
    return c, digest


def verify_status(token, bundle, grant, now_ms, skew_ms, seen=(0, 0), pending=False):
    """A status proof beside the grant that verify_grant gave (None: matches none)."""
    c, _ = open_token(token, STATUS_TYPE, STATUS, check_status, bundle)
    need(grant is not None, "binding")
    g, digest = grant
    need((c["resource"], c["lease"], c["fence"], c["grant"]) == (g["resource"], g["jti"], g["fence"], digest), "binding")
    need(c["state"] == "HELD" or pending, "state")
    need(c["iat"] * 1000 <= now_ms + skew_ms < c["exp"] * 1000, "time")
    need((c["epoch"], c["revision"]) >= tuple(seen), "revision")
    return c


# ---- the test vectors ------------------------------------------------------------


def outcome(function, *args, **named):
    try:
        function(*args, **named)
        return "accept"
    except Refused as refused:
        return str(refused)


def load(path):
    with open(path, "rb") as f:
        return json.load(f)


def grant_vectors(path):
    f = load(path)
    bundle = Bundle(json.dumps(f["bundle"]).encode())
    for v in [f["accepted"]] + f["refused"]:
        yield v, outcome(
            verify_grant, v["grant"], bundle, v["want_resource"], v.get("want_owner", ""), v["want_root"],
            v.get("want_class", "write"), v.get("want_policy", 0), v.get("want_minimum_policy", 0),
        )


def proof_vectors(path):
    f = load(path)
    bundle = Bundle(json.dumps(f["bundle"]).encode())
    grant = verify_grant(f["grant"], bundle, "invoice-batch/2026-07-19")
    for v in f["proofs"]:
        seen = v["seen_epoch"], v["seen_revision"]
        got = outcome(
            verify_status, v["proof"], bundle, None if v.get("no_grant") else grant,
            v["now_ms"], v["skew_ms"], seen, v.get("want_pending", False),
        )
        if bundle.sequence < v.get("seen_bundle_sequence", 0):
            got = "rollback"
        yield v, got


def bundle_vectors(path):
    for v in load(path)["bundles"]:
        got = outcome(Bundle, v["bundle"].encode())
        if got == "accept":
            b = Bundle(v["bundle"].encode())
            if b.sequence < v.get("seen_sequence", 0) or b.minimum < v.get("seen_minimum_epoch", 0):
                got = "rollback"
        # Which member of a bundle is wrong first is nobody's concern.
        yield v, got if v["class"] in ("accept", "rollback") or got == "accept" else v["class"]


def vectors(grants, proofs, bundles):
    wrong = 0
    for what, cases in (("grants", grant_vectors(grants)), ("proofs", proof_vectors(proofs)), ("bundles", bundle_vectors(bundles))):
        count = 0
        for v, got in cases:
            count += 1
            if got != v["class"]:
                wrong += 1
                print(f"{what}: {v.get('name', 'accepted')}: got {got}, want {v['class']}")
        print(f"{count} {what}")
    return 1 if wrong else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--vectors", nargs=3, metavar="FILE")
    p.add_argument("--bundle")
    p.add_argument("--domain")
    p.add_argument("--resource")
    p.add_argument("--owner", default="")
    p.add_argument("grant", nargs="?")
    a = p.parse_args()
    if a.vectors:
        return vectors(*a.vectors)
    if not (a.bundle and a.domain and a.resource and a.grant):
        p.error("want --bundle, --domain, --resource and a grant")
    try:
        with open(a.bundle, "rb") as f:
            bundle = Bundle(f.read())
        need(bundle.domain == a.domain, "domain")
        c, digest = verify_grant(a.grant, bundle, a.resource, a.owner)
    except Refused as refused:
        print("refused:", refused, file=sys.stderr)
        return 1
    print(f"fence {c['fence']} of {c['sub']} for {c['resource']}, {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
