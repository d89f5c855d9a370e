/*
 * lastword: the authority (protocol §2) and the resource (§4), told a second time.
 *
 * Written from spec/PROTOCOL.md, not from the code. Two clients, one resource; the
 * issuer starts at 40. Time is abstract: a tenure may lapse at any moment, and a
 * client may write although its own has (it was stopped between its check and its
 * write). Requests may be repeated, writes may be late and doubled, an authority
 * process may start again, the store may be put back to a backup.
 *
 *   spin -run lastword.pml              the right system: no violation
 *   spin -run -DNO_FENCE  lastword.pml  the resource does not compare
 *   spin -run -DSPLIT     lastword.pml  a number can be drawn apart from a grant
 *   spin -run -DROLLBACK  lastword.pml  a restored issuer goes on at 40
 *   spin -run -DFORGETS   lastword.pml  request records are not kept
 *   spin -run -DNO_RECEIPT lastword.pml receipts are not kept
 *
 * A violation is a flag, and each flag has an assertion; -DONLY=flag looks at one alone.
 */

#define CLIENTS  2
#define ATTEMPTS 2              /* request ids of one client */
#define LEASES   4              /* grants in all, and one */
#define EPOCH    100            /* a fence is epoch * 100 + counter */
#define REQ(c, a) ((c) * ATTEMPTS + (a))

/* ---- what is durable at the authority (§2) ---- */

short counter = 40;             /* R1: outlives every lease */
byte  epoch = 0;                /* R10 */
byte  current = 0;              /* lease id of the current tenure, 0 for none */
bool  held = false;             /* it is valid */
byte  lease_of[CLIENTS * ATTEMPTS];  /* R2: request records */

/* the witness, outside the backup set (R10) */
byte  witness = 0;

/* the backup of the store; who puts it back loses request records, and R2 with them */
bool  restored = false;
bool  saved = false;
short saved_counter;
byte  saved_epoch, saved_current;
bool  saved_held;
byte  saved_lease_of[CLIENTS * ATTEMPTS];

/* ---- what is durable at the resource (§4) ---- */

short high = 0;                 /* highest fence */
byte  high_lease = 0;
bool  frozen = false;
bool  receipt[CLIENTS];         /* by operation id: one intent for each client */
byte  value = 0;                /* who wrote last, from 1 */
short value_fence = 0;

/* ---- what only the observer knows ---- */

byte  leases = 0;               /* generations, in the order of their grants */
short fence_of[LEASES];
byte  top = 0;                  /* newest generation that the resource has accepted */
byte  effects[CLIENTS];

bool revoked_generation_overwrite = false;
bool unauthorized_accept = false;
bool number_issued_twice = false;
bool two_effects = false;
bool request_granted_twice = false;

/* One assertion for each flag, so that the report says which was violated. */
#ifdef ONLY                     /* the first of several that would be found */
#define CHECK assert(!ONLY)
#else
#define CHECK d_step { \
	assert(!revoked_generation_overwrite); assert(!unauthorized_accept); \
	assert(!number_issued_twice); assert(!two_effects); assert(!request_granted_twice) }
#endif

/* A message carries fence and lease; the channel says whose operation it is. Replies
 * are not told: a client goes on as if they were lost, or as if it had heard them. */
chan submit[CLIENTS] = [1] of { short, byte };
mtype = { APPLIED, REPLAYED, STALE_OWNER, FENCE_REGRESSION, UNVERIFIED };

/* R1, R2, R3: decide, count and name the tenure in one step. */
inline acquire(me, attempt, lease, fence)
{
	d_step {
		lease = 0;
		if
		:: lease_of[REQ(me, attempt)] != 0 ->
			/* the same grant again, or word of its end: never a new fence */
			if
			:: held && current == lease_of[REQ(me, attempt)] ->
				lease = current;
				fence = fence_of[lease]
			:: else
			fi
		:: else ->
			if
			:: !held && leases < LEASES - 1 ->
				counter++;
				leases++;
				lease = leases;
				fence = epoch * EPOCH + counter;
				fence_of[lease] = fence;
				i = 1;
				do
				:: i < lease ->
					number_issued_twice = number_issued_twice || fence_of[i] == fence;
					i++
				:: else -> break
				od;
				i = 0;
				request_granted_twice = request_granted_twice || granted[attempt] && !restored;
				granted[attempt] = true;
				current = lease;
				held = true;
#ifndef FORGETS
				lease_of[REQ(me, attempt)] = lease
#endif
			:: else                       /* HELD */
			fi
		fi
	}
	CHECK
}

proctype client(byte me)
{
	byte attempt = 0, lease, i;
	short fence;
	bool granted[ATTEMPTS];
	bool drawn = false;

	do
	:: attempt < ATTEMPTS ->
		lease = 0;
		do
		:: acquire(me, attempt, lease, fence);
			if
			:: lease != 0 -> break
			:: else
			fi
		:: acquire(me, attempt, lease, fence);
			lease = 0                     /* the reply was lost */
		:: break                              /* it gives up */
		od;
		attempt++;
		if
		:: lease == 0
		:: else ->
#ifdef SPLIT
			if
			:: !drawn ->
				atomic { counter++; fence = epoch * EPOCH + counter; drawn = true }
			:: true
			fi;
#endif
			do
			:: submit[me]!fence, lease    /* and again, when no reply comes */
			:: break                      /* it crashes, or has heard enough */
			od
		fi;
		/* R6: release, by the tenure and not by the owner */
		skip;
		d_step {
			if
			:: held && current == lease -> held = false
			:: else
			fi;
			lease = 0; fence = 0; i = 0
		}
	:: else -> break
	od;
}

#if defined(NO_FENCE)
#define ADMITS(fence, lease) true
#elif defined(ROLLBACK)
/* a fence that knows a tenure by its number alone */
#define ADMITS(fence, lease) ((fence) >= high)
#else
#define ADMITS(fence, lease) \
	((fence) / EPOCH > high / EPOCH || !frozen && ((fence) > high || (fence) == high && (lease) == high_lease))
#endif

/* §4: one transaction. Proof, then receipt, then the order of fences; the number
 * inside the tenure is the record's next one. */
inline apply(op, fence, lease)
{
	d_step {
		if
#ifndef SPLIT
		:: fence_of[lease] != fence -> verdict = UNVERIFIED          /* R12 */
		:: else ->
#else
		:: true ->
#endif
			if
			:: receipt[op] -> verdict = REPLAYED                 /* P4 */
			:: !receipt[op] && !ADMITS(fence, lease) ->
				if
				:: fence < high -> verdict = STALE_OWNER
				:: else -> verdict = FENCE_REGRESSION; frozen = true
				fi
			:: else ->
				frozen = false;
				high = fence;
				high_lease = lease;
#ifndef NO_RECEIPT
				receipt[op] = true;
#endif
				value = op + 1;
				value_fence = fence;
				effects[op]++;
				two_effects = two_effects || effects[op] > 1;
				unauthorized_accept = unauthorized_accept || fence_of[lease] != fence;
				revoked_generation_overwrite = revoked_generation_overwrite || lease < top;
				top = (lease > top -> lease : top);
				verdict = APPLIED
			fi
		fi
	}
	CHECK
}

active proctype place()
{
	short fence;
	byte lease;
	mtype verdict;

end:	do
	:: atomic { submit[0]?fence, lease -> apply(0, fence, lease); fence = 0; lease = 0; verdict = 0 }
	:: atomic { submit[1]?fence, lease -> apply(1, fence, lease); fence = 0; lease = 0; verdict = 0 }
	od
}

/* Time, an operator, and what may befall the store. */
active proctype world()
{
	byte lapses = 2, starts = 1, i;

end:	do
	:: atomic { lapses > 0 && held -> held = false; lapses-- }  /* R4, R8: abstract */
	:: d_step {
		!saved ->
		saved = true;
		saved_counter = counter;
		saved_epoch = epoch;
		saved_current = current;
		saved_held = held;
		i = 0;
		do
		:: i < CLIENTS * ATTEMPTS -> saved_lease_of[i] = lease_of[i]; i++
		:: else -> break
		od;
		i = 0
	   }
	:: d_step {                     /* a start takes the next epoch (R10) */
		starts > 0 ->
		starts--;
		witness++;
		epoch = witness;
		counter = 0
	   }
	:: d_step {                     /* the backup is put back; a regression (R10) */
		saved && starts > 0 ->
		starts--;
		restored = true;
		counter = saved_counter;
		current = saved_current;
		i = 0;
		do
		:: i < CLIENTS * ATTEMPTS -> lease_of[i] = saved_lease_of[i]; saved_lease_of[i] = 0; i++
		:: else -> break
		od;
		i = 0;
#ifdef ROLLBACK
		epoch = saved_epoch;
		held = saved_held;
#else
		witness++;              /* epoch advance: above all that were found */
		epoch = witness;
		counter = 0;
		held = false;           /* tenures found have ended */
#endif
		saved_counter = 0; saved_epoch = 0; saved_current = 0; saved_held = false
	   }
	:: starts == 0 && lapses == 0 -> break
	od
}

init {
	atomic { run client(0); run client(1) }
}
