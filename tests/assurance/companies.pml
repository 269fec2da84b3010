/* Companies: honest homes, each with its own account, and an aggregator that names any company over any days to any home
   at any time, keeps what it was given for as long as it likes, and kills homes at will.

   A company is a set of members, as bits; the first HONEST of them have accounts, the others are on the aggregator's
   side. A day is its morning (six hours after midnight), its middle, and its evening (six hours before the next). What
   a home allows is written after docs/spec.md §6; what is claimed is asserted of the words that left. A sum opens when
   every honest member's words of the same company and day have left: masks allow nothing else.

   -DSHRINK_LATER=0 and the like leave a rule out: the checker must then find a violation (spin.py).                  */

#ifndef BLOCK
#define BLOCK 28      /* days in which companies only shrink: account.BLOCK; the checker takes fewer */
#endif
#ifndef LEAST
#define LEAST 10      /* members of a company: Rules.least_agents; the checker takes fewer */
#endif
#define PART 2        /* of the roster that a company needs, PART of WHOLE: company.OWNERS_SHARE */
#define WHOLE 3
#ifndef HONEST
#define HONEST 3
#endif
#ifndef MEMBERS
#define MEMBERS 3
#endif
#ifndef DAYS
#define DAYS 3
#endif

/* The rules. */
#ifndef ONE_COMPANY
#define ONE_COMPANY 1     /* a day has one company */
#endif
#ifndef SHRINK_LATER
#define SHRINK_LATER 1    /* within a block, a later day's company is within those of days before */
#endif
#ifndef SHRINK_EARLIER
#define SHRINK_EARLIER 1  /* and an earlier day's company, asked for afterwards, has all of those that came later */
#endif
#ifndef LARGE
#define LARGE 1           /* a company has enough members */
#endif
#ifndef SHARE
#define SHARE 1           /* and enough of those enrolled */
#endif
#ifndef HOLE
#define HOLE 1            /* beside a change of company six hours are not given */
#endif
#ifndef BOOKED_FIRST
#define BOOKED_FIRST 1    /* what leaves is on disk before */
#endif

#define COMPANIES (1 << MEMBERS)
#define within(a, b) ((a & b) == a)
#define has(company, home) ((company >> home) & 1)
#define honest_in(company) (company & ((1 << HONEST) - 1))
#define count(c) ((c & 1) + ((c >> 1) & 1) + ((c >> 2) & 1) + ((c >> 3) & 1))
#define large(c) (!LARGE || count(c) >= LEAST)
#define most(c) (!SHARE || WHOLE * count(c) >= PART * MEMBERS)

byte settled[HONEST * DAYS];                 /* each home's account: the company of a day, 0 before the first reading left */

short given[HONEST * DAYS];                  /* what left, for the observer: bit c, words of the day in company c */
byte morning[HONEST * DAYS], evening[HONEST * DAYS];         /* the company in which those rows left, 0: they did not */

byte home, company, days, d, e, a, b;
bool yes;

/* Account.refuses_company */
inline accepts() {
  yes = large(company) && most(company);
  d = 0;
  do
  :: d < DAYS && has(days, d) ->
     if
     :: ONE_COMPANY && settled[home * DAYS + d] != 0 && settled[home * DAYS + d] != company -> yes = false
     :: else -> skip
     fi;
     e = 0;
     do
     :: e < DAYS ->
        if
        :: e / BLOCK != d / BLOCK || settled[home * DAYS + e] == 0 || e == d -> skip
        :: else ->
           if
           :: SHRINK_LATER && e < d && !within(company, settled[home * DAYS + e]) -> yes = false
           :: SHRINK_EARLIER && e > d && !within(settled[home * DAYS + e], company) -> yes = false
           :: else -> skip
           fi
        fi;
        e++
     :: e == DAYS -> break
     od;
     d++
  :: d < DAYS && !has(days, d) -> d++
  :: d == DAYS -> break
  od;
  printf("company %d %d %d %d\n", home, company, days, yes)
}

/* Account.settle */
inline settle() {
  d = 0;
  do
  :: d < DAYS && has(days, d) -> settled[home * DAYS + d] = company; d++
  :: d < DAYS && !has(days, d) -> d++
  :: d == DAYS -> break
  od
}

/* Account.beside_a_change decides which rows leave. */
inline leave() {
  d = 0;
  do
  :: d < DAYS && has(days, d) ->
     given[home * DAYS + d] = given[home * DAYS + d] | (1 << company);
     if
     :: HOLE && d > 0 && settled[home * DAYS + d - 1] != 0 && settled[home * DAYS + d - 1] != company -> skip
     :: else -> morning[home * DAYS + d] = company
     fi;
     if
     :: HOLE && d < DAYS - 1 && settled[home * DAYS + d + 1] != 0 && settled[home * DAYS + d + 1] != company -> skip
     :: else -> evening[home * DAYS + d] = company
     fi;
     d++
  :: d < DAYS && !has(days, d) -> d++
  :: d == DAYS -> break
  od
}

#define gave(i, day, c) (!has(c, i) || ((given[i * DAYS + day] >> c) & 1))
#if HONEST == 3
#define opens(c, day) (honest_in(c) != 0 && gave(0, day, c) && gave(1, day, c) && gave(2, day, c))
#else
#define opens(c, day) (honest_in(c) != 0 && gave(0, day, c) && gave(1, day, c))
#endif

/* No two sums that open can be subtracted to show part of a company, nor a home that moved. */
inline look() {
  d = 0;
  do
  :: d < DAYS ->
     if
     :: d < DAYS - 1 && evening[home * DAYS + d] != 0 && morning[home * DAYS + d + 1] != 0 ->
        assert(evening[home * DAYS + d] == morning[home * DAYS + d + 1])
     :: else -> skip
     fi;
     a = 1;
     do
     :: a < COMPANIES ->
        if
        :: !opens(a, d) -> skip
        :: else ->
           assert(count(a) >= LEAST && WHOLE * count(a) >= PART * MEMBERS);
           e = d;
           do
           :: e < DAYS ->
              b = 1;
              do
              :: b < COMPANIES ->
                 if
                 :: a == b || honest_in(a & b) == 0 || !opens(b, e) -> skip
                 :: else ->
                    assert(e != d);                          /* one stamp, two companies */
                    assert(e / BLOCK != d / BLOCK || within(b, a))   /* a later day, a company that grew */
                 fi;
                 b++
              :: b == COMPANIES -> break
              od;
              e++
           :: e == DAYS -> break
           od
        fi;
        a++
     :: a == COMPANIES -> break
     od;
     d++
  :: d == DAYS -> break
  od
}

active proctype aggregator() {
  do
  :: atomic {
       select(home : 0 .. HONEST - 1);
       select(company : 1 .. COMPANIES - 1);
       select(days : 1 .. (1 << DAYS) - 1);
       if
       :: !has(company, home) -> skip
       :: else ->
          d_step { accepts() };
          if
          :: !yes -> skip
          :: yes && BOOKED_FIRST -> d_step { settle(); leave(); d = 0 }
          :: yes && BOOKED_FIRST -> d_step { settle(); d = 0 } /* killed before it left */
          :: yes && !BOOKED_FIRST -> d_step { leave(); settle(); d = 0 }
          :: yes && !BOOKED_FIRST -> d_step { leave(); d = 0 } /* killed before it was written */
          fi;
          d_step { look(); d = 0 }
       fi;
       home = 0; company = 0; days = 0; d = 0; e = 0; a = 0; b = 0; yes = false }
  od
}
