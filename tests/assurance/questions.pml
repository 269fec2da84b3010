/* One home's account under an aggregator that asks anything, in any order, again and again, and kills the home at will.

   What the account allows is written after docs/spec.md §6; what is claimed is asserted of the words that left, which
   are counted apart from the account. No rule here looks at another home, so one home stands for any number of them.

   A fit is a plan and the rows it came down to. Fit 0: plan A over all days; fit 1: plan A over day 0 alone; fit 2:
   plan B over the last day. A day has two stamps: one within the rows of the fits, one after them.

   -DONE_GRID=0 and the like leave a rule out: the checker must then find a violation (spin.py).                     */

#ifndef TOTALS
#define TOTALS 5      /* over a day, the first among them: Rules.totals */
#endif
#ifndef SIGNS
#define SIGNS 3       /* counts of signs over a day: plan.MOST_SIGNS */
#endif
#ifndef ASKINGS
#define ASKINGS 4     /* of one question, or of one stamp: account.MOST_ASKINGS */
#endif
#ifndef DAYS
#define DAYS 1
#endif
#define FITS 3

/* The rules. */
#ifndef ONE_WEIGHTING
#define ONE_WEIGHTING 1 /* a day is shown under one weighting, equal or fitted */
#endif
#ifndef ONE_GRID
#define ONE_GRID 1      /* a day has one grid */
#endif
#ifndef ONE_PLAN
#define ONE_PLAN 1      /* a day that a fit asked, or is shown under, is in no other plan */
#endif
#ifndef ONE_FIT
#define ONE_FIT 1       /* a fit is not opened over a day that has a total */
#endif
#ifndef ONE_MODEL
#define ONE_MODEL 1     /* one model is released over a day */
#endif
#ifndef ONE_RELEASE
#define ONE_RELEASE 1   /* rows under a release stay off days of another fit */
#endif
#ifndef MOST_TOTALS
#define MOST_TOTALS 1   /* totals over a day */
#endif
#ifndef MOST_SIGNS
#define MOST_SIGNS 1    /* counts of signs over a day */
#endif
#ifndef MOST_ASKINGS
#define MOST_ASKINGS 1  /* askings of a question */
#endif
#ifndef MOST_SHOWINGS
#define MOST_SHOWINGS 1 /* showings of a stamp */
#endif
#ifndef BOOKED_FIRST
#define BOOKED_FIRST 1  /* what leaves is on disk before */
#endif

#define plan_of(f) (f / 2 + 1)                               /* 1: A, 2: B */
#define covers(f, d) (f == 0 || (f == 1 && d == 0) || (f == 2 && d == DAYS - 1))
#define last_day(f) (f == 1 -> 0 : DAYS - 1)

/* Questions of a fit: one to open it, then totals, signs and releases, one more of each than is allowed. */
#define KIND_OPEN 0
#define KIND_TOTAL 1
#define KIND_SIGNS 2
#define KIND_RELEASE 3
#define QUESTIONS (1 + TOTALS + SIGNS + 1 + 2)
#define kind_of(q) (q == 0 -> KIND_OPEN : (q <= TOTALS -> KIND_TOTAL : (q <= TOTALS + SIGNS + 1 -> KIND_SIGNS : KIND_RELEASE)))
#define first_of_kind(q) (q <= 1 || q == TOTALS + 1 || q == TOTALS + SIGNS + 2)
#define FIT_GRID 1                                           /* rows with equal weights are asked for on two grids */
#define EQUAL 1
#define FITTED 2
#define release_id(f, q) (3 + 2 * f + q - (TOTALS + SIGNS + 2))  /* the weights of a release: not EQUAL, not FITTED */
#define fit_of(id) ((id - 3) / 2)

/* The account: what is booked, on disk. It survives whatever happens to the process. */
byte weighting[DAYS], grid[DAYS], plan[DAYS], totals[DAYS], signs[DAYS], model[DAYS];
byte booked[FITS * QUESTIONS];
byte shown[2 * DAYS];
bool consented[FITS * 2];

/* The run it is in: forgotten when the process is killed. */
byte running = FITS;                                         /* FITS: in none */
bool opened;

/* What left, counted by an observer. */
byte left[FITS * QUESTIONS], left_totals[DAYS], left_signs[DAYS], left_models[DAYS], left_shown[2 * DAYS];
byte left_fit[DAYS], left_grid[DAYS];                        /* the fit whose totals left, plus one; the grid */
byte left_under[DAYS];                                       /* the weights under which stamps left */

byte d, f, q, s, w, g;
bool yes;

inline one_grid(day, step) {
  assert(left_grid[day] == 0 || left_grid[day] == step);
  left_grid[day] = step
}

inline one_weighting(day, under) {
  assert(left_under[day] == 0 || left_under[day] == under);
  left_under[day] = under
}

inline show_stamp(stamp) {
  left_shown[stamp]++;
  assert(left_shown[stamp] <= ASKINGS)
}

/* A question's words leave: asserted of the words, whatever the account says. */
inline leave() {
  left[f * QUESTIONS + q]++;
  assert(left[f * QUESTIONS + q] <= ASKINGS);
  d = 0;
  do
  :: d < DAYS && covers(f, d) ->
     one_grid(d, FIT_GRID);
     if
     :: left[f * QUESTIONS + q] > 1 -> skip
     :: else ->
        left_totals[d] = left_totals[d] + (kind_of(q) <= KIND_TOTAL);
        left_signs[d] = left_signs[d] + (kind_of(q) == KIND_SIGNS);
        left_models[d] = left_models[d] + (kind_of(q) == KIND_RELEASE)
     fi;
     assert(left_totals[d] <= TOTALS && left_signs[d] <= SIGNS && left_models[d] <= 1);
     assert(left_fit[d] == 0 || left_fit[d] == f + 1);       /* a day is opened to one fit */
     left_fit[d] = f + 1;
     assert(left_under[d] == 0 || (left_under[d] >= 3 && fit_of(left_under[d]) == f));
     if
     :: kind_of(q) == KIND_RELEASE -> one_weighting(d, release_id(f, q)); show_stamp(2 * d)
     :: else -> skip
     fi;
     d++
  :: d < DAYS && !covers(f, d) -> d++
  :: d == DAYS -> break
  od
}

/* Account.refuses: whether a day may be in a fit. */
inline in_on_the_days_of_a_fit() {
  yes = true; d = 0;
  do
  :: d < DAYS ->
     if
     :: !covers(f, d) -> skip
     :: ONE_WEIGHTING && covers(f, d) && weighting[d] == EQUAL -> yes = false
     :: ONE_GRID && covers(f, d) && grid[d] != 0 && grid[d] != FIT_GRID -> yes = false
     :: ONE_PLAN && covers(f, d) && plan[d] != plan_of(f) && (model[d] != 0 || totals[d] > 0) -> yes = false
     :: else -> skip
     fi;
     d++
  :: d == DAYS -> break
  od
}

/* Account.settle: before the first word that carries a reading. */
inline settle_the_days_of_a_fit() {
  d = 0;
  do
  :: d < DAYS && covers(f, d) -> weighting[d] = FITTED; grid[d] = FIT_GRID; d++
  :: d < DAYS && !covers(f, d) -> d++
  :: d == DAYS -> break
  od
}

/* Account.refuses_question */
inline may_be_answered() {
  yes = true;
  if
  :: booked[f * QUESTIONS + q] > 0 -> yes = !(MOST_ASKINGS && booked[f * QUESTIONS + q] >= ASKINGS)
  :: booked[f * QUESTIONS + q] == 0 ->
     d = 0;
     do
     :: d < DAYS ->
        if
        :: !covers(f, d) -> skip
        :: ONE_FIT && covers(f, d) && kind_of(q) == KIND_OPEN && totals[d] > 0 -> yes = false
        :: MOST_TOTALS && covers(f, d) && kind_of(q) == KIND_TOTAL && totals[d] >= TOTALS -> yes = false
        :: MOST_SIGNS && covers(f, d) && kind_of(q) == KIND_SIGNS && signs[d] >= SIGNS -> yes = false
        :: ONE_MODEL && covers(f, d) && kind_of(q) == KIND_RELEASE && model[d] != 0 -> yes = false
        :: else -> skip
        fi;
        d++
     :: d == DAYS -> break
     od
  fi
}

/* Account.book of an Answered and, with a release, a Shown */
inline book() {
  booked[f * QUESTIONS + q]++;
  d = 0;
  do
  :: d < DAYS && covers(f, d) ->
     if
     :: booked[f * QUESTIONS + q] > 1 -> skip                /* the same question again is free */
     :: else ->
        plan[d] = plan_of(f);
        totals[d] = totals[d] + (kind_of(q) <= KIND_TOTAL);
        signs[d] = signs[d] + (kind_of(q) == KIND_SIGNS);
        if
        :: kind_of(q) == KIND_RELEASE -> model[d] = release_id(f, q)
        :: else -> skip
        fi
     fi;
     if
     :: kind_of(q) == KIND_RELEASE -> shown[2 * d]++
     :: else -> skip
     fi;
     d++
  :: d < DAYS && !covers(f, d) -> d++
  :: d == DAYS -> break
  od;
  if
  :: kind_of(q) == KIND_RELEASE -> consented[release_id(f, q) - 3] = true
  :: else -> skip
  fi
}

/* What leaves is on disk before it does. Killed in between, the home has answered less than its account says. */
inline answer() {
  if
  :: BOOKED_FIRST -> book(); leave()
  :: BOOKED_FIRST -> book(); running = FITS; opened = false  /* killed before it left */
  :: !BOOKED_FIRST -> leave(); book()
  :: !BOOKED_FIRST -> leave(); running = FITS; opened = false /* killed before it was written */
  fi
}

inline announce_a_fit() {
  in_on_the_days_of_a_fit();
  printf("fit %d %d\n", f, yes);
  if
  :: yes -> running = f; opened = false; settle_the_days_of_a_fit()
  :: else -> skip
  fi
}

/* One more question of the run; a new one after those of its kind that were asked before. */
inline ask() {
  may_be_answered();
  printf("ask %d %d %d\n", f, q, yes);
  if
  :: !yes -> running = FITS; opened = false                  /* refused: the run is over */
  :: yes ->
     opened = true;
     answer()
  fi
}

/* Rows of a day with equal weights (w == EQUAL), or with those of a release. */
inline collect() {
  yes = true;
  if
  :: ONE_WEIGHTING && weighting[d] != 0 && weighting[d] != (w == EQUAL -> EQUAL : FITTED) -> yes = false
  :: ONE_GRID && grid[d] != 0 && grid[d] != g -> yes = false
  :: ONE_RELEASE && w != EQUAL && model[d] != w && (model[d] != 0 || totals[d] > 0) -> yes = false
  :: MOST_SHOWINGS && shown[2 * d + s] >= ASKINGS -> yes = false
  :: else -> skip
  fi;
  printf("collect %d %d %d %d %d\n", d, s, w, g, yes);
  if
  :: !yes -> skip
  :: yes && BOOKED_FIRST -> book_rows(); show_words()
  :: yes && BOOKED_FIRST -> book_rows()
  :: yes && !BOOKED_FIRST -> show_words(); book_rows()
  :: yes && !BOOKED_FIRST -> show_words()
  fi
}

inline book_rows() {
  weighting[d] = (w == EQUAL -> EQUAL : FITTED);
  grid[d] = g;
  shown[2 * d + s]++;
  if
  :: w != EQUAL -> model[d] = w
  :: else -> skip
  fi
}

inline show_words() {
  show_stamp(2 * d + s);
  one_grid(d, g);
  one_weighting(d, w);
  assert(left_fit[d] == 0 || (w >= 3 && left_fit[d] == fit_of(w) + 1))
}

active proctype home() {
  do
  :: atomic { running == FITS -> select(f : 0 .. FITS - 1); announce_a_fit(); f = 0; q = 0; d = 0 }
  :: atomic { running < FITS ->
       f = running;
       select(q : 0 .. QUESTIONS - 1);
       if
       :: !opened && q != 0 -> skip                          /* a run begins with its first total */
       :: opened && q == 0 -> skip
       :: (opened || q == 0) && !(opened && q == 0) &&
          !first_of_kind(q) && booked[f * QUESTIONS + q - 1] == 0 && left[f * QUESTIONS + q - 1] == 0 -> skip
       :: else -> ask()
       fi;
       f = 0; q = 0; d = 0 }
  :: atomic { running < FITS -> running = FITS; opened = false; printf("end\n") }    /* broken off, or killed */
  :: atomic { running == FITS ->
       select(d : 0 .. DAYS - 1); select(s : 0 .. 1); select(w : 0 .. 2 * FITS);
       if
       :: w == 0 -> w = EQUAL; select(g : 1 .. 2); collect()
       :: w > 0 ->
          w = w + 2; g = FIT_GRID;
          if
          :: consented[w - 3] && (d > last_day(fit_of(w)) || (d == last_day(fit_of(w)) && s == 1)) -> collect()
          :: else -> skip
          fi
       fi;
       d = 0; s = 0; w = 0; g = 0 }
  od
}
