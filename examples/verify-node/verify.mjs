#!/usr/bin/env node
// Verify lastword grants and status proofs with what Node.js has of its own: node:crypto.
//
//   verify.mjs --bundle bundle.json --domain D --resource R [--owner O] GRANT
//   verify.mjs --vectors grant.json proof.json bundle.json
//
// The format, and the steps in their order, are in spec/GRANT.md. No package is needed:
// Ed25519 keys are read from their JWK, and the strict profile is what is written here.

import { createHash, createPublicKey, verify as checkSignature } from "node:crypto";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

const MAX_BYTES = 4096, MAX_BUNDLE_BYTES = 64 << 10, MAX_KEYS = 64;
const MAX_EPOCH = 2 ** 20 - 1, COUNTER = 2 ** 33;
const LAST_SECOND = 253402300799, MAX_STATUS_LIFE = 60;

const GRANT_TYPE = "lockgrant.v1+jwt", STATUS_TYPE = "leasestatus.v1+jwt";
const HEADER = { alg: "string", kid: "string", typ: "string" };
const GRANT = {
  class: "string", epoch: "number", fence: "number", iat: "number", iss: "string", jti: "string", policy: "number",
  request: "string", resource: "string", revision: "number", root: "string", sub: "string", ttl_ns: "number", version: "number",
};
const STATUS = {
  epoch: "number", exp: "number", fence: "number", grant: "string", iat: "number", iss: "string",
  lease: "string", resource: "string", revision: "number", state: "string", version: "number",
};

// Refused: a token is not believed. Its message is the class of failure.
class Refused extends Error {}

function need(condition, failure) {
  if (!condition) throw new Refused(failure);
}

// ---- shape ---------------------------------------------------------------------

// Strict base64url: no padding, no other alphabet, no bits left over.
function decode(segment) {
  need(typeof segment === "string" && /^[A-Za-z0-9_-]*$/.test(segment) && !segment.endsWith("\n"), "shape");
  const raw = Buffer.from(segment, "base64url");
  need(raw.toString("base64url") === segment, "shape");
  return raw;
}

function text(raw) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
  } catch {
    throw new Refused("shape");
  }
}

function parse(json) {
  try {
    return JSON.parse(json);
  } catch {
    throw new Refused("shape");
  }
}

const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);
const isNumber = (v) => Number.isSafeInteger(v) && v >= 0 && !Object.is(v, -0);

// One JSON object with exactly these members, in its only spelling (RFC 8785). Writing it
// again shows what JSON.parse lets pass: two members of one name, 1.0, white space.
function readObject(raw, members) {
  const json = text(raw);
  const value = parse(json);
  need(isObject(value), "shape");
  const names = Object.keys(members); // sorted above
  need(Object.keys(value).length === names.length && names.every((n) => Object.hasOwn(value, n)), "shape");
  for (const n of names) need(members[n] === "number" ? isNumber(value[n]) : typeof value[n] === "string", "shape");
  need("{" + names.map((n) => `"${n}":${JSON.stringify(value[n])}`).join(",") + "}" === json, "shape");
  return value;
}

const isID = (s) => typeof s === "string" && s !== "" && Buffer.byteLength(s) <= 512 && !/\p{Cc}/u.test(s);
const isResource = (s) => isID(s) && s.split("/").every((part) => !["", ".", ".."].includes(part));
const isDigest = (s) => /^sha256:[0-9a-f]{64}$/.test(s) && !/^sha256:0+$/.test(s);

function checkGrant(c) {
  need(c.fence >= 1, "shape");
  need([c.class, c.iss, c.jti, c.request, c.sub].every(isID), "shape");
  need(isResource(c.resource) && (c.root === "" || isDigest(c.root)), "shape");
  need(c.ttl_ns >= 1 && c.iat <= LAST_SECOND, "shape");
}

function checkStatus(c) {
  need(c.fence >= 1, "shape");
  need(isID(c.iss) && isID(c.lease) && isResource(c.resource) && isDigest(c.grant), "shape");
  need(["HELD", "PENDING"].includes(c.state), "shape");
  need(c.exp <= LAST_SECOND && c.exp - c.iat >= 1 && c.exp - c.iat <= MAX_STATUS_LIFE, "shape");
}

// ---- trust ---------------------------------------------------------------------

// A bundle may have members that are not known here, so it is not compared with its only
// spelling. JSON.parse keeps the last of two members, so they are looked for before.
function checkJSON(json) {
  const open = [];
  let last = "";
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g)) {
    if (token === "{" || token === "[") {
      open.push(new Set());
      need(open.length <= 4, "shape");
    } else if (token === "}" || token === "]") {
      open.pop();
    } else if (token === ":" && last.startsWith('"')) {
      const name = parse(last);
      need(open.length > 0 && !open.at(-1).has(name), "shape");
      open.at(-1).add(name);
    } else if (/^[-0-9]/.test(token)) {
      need(/^(0|[1-9][0-9]*)$/.test(token), "shape");
    }
    last = token;
  }
}

// readBundle reads a trust bundle. It is fetched over a pinned channel, or copied by hand.
function readBundle(raw) {
  need(raw.length <= MAX_BUNDLE_BYTES, "shape");
  const json = text(raw);
  const b = parse(json);
  checkJSON(json);
  need(isObject(b) && Array.isArray(b.keys), "shape");
  const bundle = {
    domain: b.lastword_domain, sequence: b.spiffe_sequence,
    current: b.lastword_current_epoch, minimum: b.lastword_minimum_epoch, keys: new Map(),
  };
  const hint = b.spiffe_refresh_hint ?? 0;
  need(isID(bundle.domain) && [bundle.sequence, bundle.current, bundle.minimum, hint].every(isNumber), "value");
  need(bundle.minimum <= bundle.current && bundle.current <= MAX_EPOCH && hint <= 2 ** 63 / 1e9, "value");
  const names = [];
  for (const k of b.lastword_zone_keys ?? []) { // named only: this program was not given them
    need(isObject(k) && !("k" in k), "secret");
    need(k.alg === "HS256" && decode(k.kid).length === 32, "key");
    names.push(k.kid);
  }
  for (const k of b.keys) {
    need(isObject(k) && k.kty !== "oct" && !("d" in k), "secret");
    if (k.kty !== "OKP" || k.crv !== "Ed25519") continue;
    need(k.alg === "EdDSA" && decode(k.x).length === 32, "key");
    const thumbprint = createHash("sha256").update(`{"crv":"Ed25519","kty":"OKP","x":"${k.x}"}`).digest("base64url");
    need(k.kid === thumbprint, "key");
    const first = k.lastword_first_epoch ?? 0, last = k.lastword_last_epoch ?? MAX_EPOCH;
    need(isNumber(first) && isNumber(last) && last >= first, "key");
    names.push(k.kid);
    const key = createPublicKey({ key: { kty: k.kty, crv: k.crv, x: k.x }, format: "jwk" });
    bundle.keys.set(k.kid, { alg: "EdDSA", key, first, last });
  }
  need(names.length <= MAX_KEYS && new Set(names).size === names.length, "key");
  return bundle;
}

// Steps 1 to 7, up to the issuer epoch.
function open(token, typ, members, check, bundle) {
  need(Buffer.byteLength(token) <= MAX_BYTES && token.split(".", 5).length === 3, "shape");
  const [head, body, seal] = token.split(".");
  const signature = decode(seal);
  const header = readObject(decode(head), HEADER);
  need(header.typ === typ, "type");
  const c = readObject(decode(body), members);
  need(c.version === 1, "type");
  check(c);
  const key = bundle.keys.get(header.kid);
  need(key, "key");
  need(header.alg === key.alg, "algorithm"); // the key's, never the token's
  need(checkSignature(null, Buffer.from(`${head}.${body}`), key.key, signature), "signature");
  need(c.iss === bundle.domain, "domain");
  const ofFence = Math.floor(c.fence / COUNTER); // exact up to 2^53
  need(typ === GRANT_TYPE ? c.epoch === ofFence : ofFence <= c.epoch && c.epoch <= MAX_EPOCH, "epoch");
  need(key.first <= c.epoch && c.epoch <= key.last, "epoch");
  need(bundle.minimum <= ofFence && c.epoch <= bundle.current, "epoch");
  return { claims: c, digest: "sha256:" + createHash("sha256").update(`${head}.${body}`).digest("hex") };
}

// Steps 1 to 10. owner is the authenticated caller; "" compares nothing.
function verifyGrant(token, bundle, want) {
  const g = open(token, GRANT_TYPE, GRANT, checkGrant, bundle);
  const c = g.claims;
  need(c.resource === want.resource, "binding");
  need(!want.owner || c.sub === want.owner, "binding");
  need(want.root == null || c.root === want.root, "binding");
  need(want.class === "advance" || c.class === (want.class || "write"), "class");
  need(!want.policy || c.policy === want.policy, "policy");
  need(c.policy >= (want.minimumPolicy ?? 0), "policy");
  return g;
}

// A status proof beside the grant that verifyGrant gave (null: matches none).
function verifyStatus(token, bundle, grant, want) {
  const { claims: c } = open(token, STATUS_TYPE, STATUS, checkStatus, bundle);
  need(grant, "binding");
  const g = grant.claims;
  need(c.resource === g.resource && c.lease === g.jti && c.fence === g.fence && c.grant === grant.digest, "binding");
  need(c.state === "HELD" || want.pending, "state");
  const at = want.nowMs + want.skewMs;
  need(c.iat * 1000 <= at && at < c.exp * 1000, "time");
  need(c.epoch > want.seenEpoch || (c.epoch === want.seenEpoch && c.revision >= want.seenRevision), "revision");
  return c;
}

// ---- the test vectors ------------------------------------------------------------

function outcome(f) {
  try {
    f();
    return "accept";
  } catch (e) {
    if (e instanceof Refused) return e.message;
    throw e;
  }
}

const load = (path) => JSON.parse(readFileSync(path, "utf8"));

function* grantVectors(path) {
  const f = load(path);
  const bundle = readBundle(Buffer.from(JSON.stringify(f.bundle)));
  for (const v of [f.accepted, ...f.refused]) {
    yield [v, outcome(() => verifyGrant(v.grant, bundle, {
      resource: v.want_resource, owner: v.want_owner, root: v.want_root, class: v.want_class,
      policy: v.want_policy, minimumPolicy: v.want_minimum_policy,
    }))];
  }
}

function* proofVectors(path) {
  const f = load(path);
  const bundle = readBundle(Buffer.from(JSON.stringify(f.bundle)));
  const grant = verifyGrant(f.grant, bundle, { resource: "invoice-batch/2026-07-19" });
  for (const v of f.proofs) {
    const got = outcome(() => verifyStatus(v.proof, bundle, v.no_grant ? null : grant, {
      nowMs: v.now_ms, skewMs: v.skew_ms, pending: v.want_pending, seenEpoch: v.seen_epoch, seenRevision: v.seen_revision,
    }));
    yield [v, bundle.sequence < (v.seen_bundle_sequence ?? 0) ? "rollback" : got];
  }
}

function* bundleVectors(path) {
  for (const v of load(path).bundles) {
    let bundle;
    let got = outcome(() => { bundle = readBundle(Buffer.from(v.bundle)); });
    if (bundle && (bundle.sequence < (v.seen_sequence ?? 0) || bundle.minimum < (v.seen_minimum_epoch ?? 0))) got = "rollback";
    // Which member of a bundle is wrong first is nobody's concern.
    yield [v, ["accept", "rollback"].includes(v.class) || got === "accept" ? got : v.class];
  }
}

function vectors([grants, proofs, bundles]) {
  let wrong = 0;
  for (const [what, cases] of [["grants", grantVectors(grants)], ["proofs", proofVectors(proofs)], ["bundles", bundleVectors(bundles)]]) {
    let count = 0;
    for (const [v, got] of cases) {
      count++;
      if (got === v.class) continue;
      wrong++;
      console.log(`${what}: ${v.name ?? "accepted"}: got ${got}, want ${v.class}`);
    }
    console.log(`${count} ${what}`);
  }
  return wrong ? 1 : 0;
}

function main() {
  const { values: a, positionals } = parseArgs({
    allowPositionals: true,
    options: Object.fromEntries(["vectors", "bundle", "domain", "resource", "owner"].map((n) => [n, { type: n === "vectors" ? "boolean" : "string" }])),
  });
  if (a.vectors && positionals.length === 3) return vectors(positionals);
  if (!a.bundle || !a.domain || !a.resource || positionals.length !== 1) {
    console.error("want --bundle, --domain, --resource and a grant, or --vectors and three files");
    return 2;
  }
  try {
    const bundle = readBundle(readFileSync(a.bundle));
    need(bundle.domain === a.domain, "domain");
    const { claims: c, digest } = verifyGrant(positionals[0], bundle, { resource: a.resource, owner: a.owner });
    console.log(`fence ${c.fence} of ${c.sub} for ${c.resource}, ${digest}`);
    return 0;
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    console.error("refused:", e.message);
    return 1;
  }
}

process.exitCode = main();
