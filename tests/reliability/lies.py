"""What a lying party does in a simulated world: a table, one row a lie.

    aggregator   asks for what it must not have, names companies, alters, repeats or holds back what agents see
    leader       alters the group secret, the seal, or the numbers that are released
    agent        alters its own words, keys, signatures and answers, or gives the group secret away

A lie acts where messages pass (`down`: to agents, `up`: of the liar) or where a run is announced (`ask`, `choose`). It
has all the liar has: its keys, its part of the run, everything it was ever sent. LIES says what each does, for the
table of docs/reliability.md; simulation.py tells one in most worlds of months, and counts how often.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from atdm.crypto import ring
from atdm.crypto.keys import derive, open_sealed, seal
from atdm.errors import RunAborted
from atdm.protocol.blind.release import open_release, seal_release, vouched
from atdm.protocol.company import bits
from atdm.protocol.messages import (
    Abort,
    Announce,
    Finished,
    Keys,
    Masked,
    Ready,
    Refuse,
    Release,
    Seal,
    Secret,
    Secrets,
    Total,
)
from atdm.protocol.plan import DAY, VERSION, Collect, Plan, day_count
from atdm.protocol.roster import sign_roster
from atdm.protocol.session import announce_hash, make_keys

World = Any  # a Simulation, which imports this table
Posted = list[tuple[int, Any]]  # home, message
change = msgspec.structs.replace


@dataclass(frozen=True, kw_only=True)
class Lie:
    """One row. None from a hook: nothing to lie about here."""

    liar: str
    does: str
    down: Callable[..., Posted | None] | None = None  # world, message, homes → who gets what
    up: Callable[..., list[Any] | None] | None = None  # world, message → what the liar sends instead
    ask: Callable[..., dict[str, Any] | None] | None = None  # world, plan → what the aggregator is made with instead
    choose: Callable[..., Any] | None = None  # world, answers → company and days, or RunAborted
    begin: Callable[..., bool] | None = None  # world: once, before anything else
    spoils: bool = False  # whether what then opens need not be the truth: its own words, or its own result


# What the aggregator shows


def offset(data: bytes, world: World) -> bytes:
    words = ring.from_bytes(data, len(data) // 8)
    words[world.rng.randrange(len(words))] += np.uint64(1 << world.rng.randrange(64))
    return ring.to_bytes(words)


def off_by_a_bit(world: World, message: Total) -> Total:
    return change(message, words=offset(message.words, world))


def flipped(world: World, message: Any) -> Any:
    return change(message, box=message.box[:-1] + bytes([message.box[-1] ^ 1]))


def on(kind: type, change_of: Callable[..., Any], some: bool = False) -> Callable[..., Posted | None]:
    """Messages of a kind become what change_of(world, message) gives; some: for one home only."""

    def down(world: World, message: Any, homes: list[int]) -> Posted | None:
        if not isinstance(message, kind) or (other := change_of(world, message)) is None:
            return None
        victims = {world.rng.choice(homes)} if some else set(homes)
        return [(i, other if i in victims else message) for i in homes]

    return down


def earlier(kind: type, renamed: bool = False) -> Callable[..., Any]:
    """One of this kind that was sent before, as it was or under the name of this run."""

    def other(world: World, message: Any) -> Any:
        known = [each for each in world.past if type(each) is kind and each != message]
        if not known:
            return None
        found = world.rng.choice(known[-40:])
        name = {k: getattr(message, k) for k in ("run", "step") if renamed and hasattr(message, k)}
        return change(found, **name)

    return other


def swapped_secrets(world: World, message: Any, homes: list[int]) -> Posted | None:
    """Whoever gets its secret gets the one of the agent before it."""
    if not isinstance(message, Secret):
        return None
    before, world.kept["secret"] = world.kept.get("secret"), message
    return None if before is None or before.run != message.run else [(i, before) for i in homes]


def two_plans(world: World, message: Any, homes: list[int]) -> Posted | None:
    """Half of the agents are announced another plan; whoever answers is put into one company all the same."""
    if isinstance(message, Announce):
        plan = message.plan
        other = change(plan, ridge=plan.ridge + 1.0) if isinstance(plan, Plan) else fewer_rows(world, plan)
        return [(i, message if n % 2 else change(message, plan=other)) for n, i in enumerate(homes)]
    if not isinstance(message, Keys):
        return None
    keys = everybodys_keys(world)
    return [(i, keys) for i in world.enrolled()]


def fewer_rows(world: World, plan: Collect) -> Collect:
    return change(plan, asked=bits(np.array([k == 0 or world.rng.random() < 0.7 for k in range(plan.length)])))


def everybodys_keys(world: World) -> Keys:
    """Of all that answered, whatever they were announced."""
    places = {world.role.roster.index(world.homes[i].key.public): ready for i, ready in world.answers.items()}
    days = np.bitwise_and.reduce([np.frombuffer(ready.days, np.uint8) for ready in places.values()]).tobytes()
    return make_keys(world.role.roster, days, places)


def two_companies(world: World, message: Any, homes: list[int]) -> Posted | None:
    """Some are shown one company, the others another: each without somebody."""
    if not isinstance(message, Keys) or len(world.answers) < 4:
        return None
    places = {world.role.roster.index(world.homes[i].key.public): ready for i, ready in world.answers.items()}
    one, other = (sorted(places)[:-1], sorted(places)[1:])
    keys = [make_keys(world.role.roster, message.days, {p: places[p] for p in some}) for some in (one, other)]
    return [(i, keys[n % 2]) for n, i in enumerate(world.enrolled())]


def all_days(world: World, message: Keys) -> Keys | None:
    days = every_day(world)
    return change(message, days=days) if days != message.days else None


def every_day(world: World) -> bytes:
    """Of the plan, as bits."""
    return bits(np.ones(day_count(world.role._announce.plan), dtype=bool))


def another_key(world: World, message: Keys) -> Keys:
    """The aggregator's own in place of one agent's, as a man in the middle would."""
    at = 32 * world.rng.randrange(len(message.exchange) // 32)
    return change(message, exchange=message.exchange[:at] + world.rng.randbytes(32) + message.exchange[at + 32 :])


def claimed(world: World, message: Total) -> Total | None:
    """Rows that somebody could not give are claimed to be everybody's."""
    if world.role.run is None or world.role.run.announced.protocol != "collect":
        return None
    words = ring.from_bytes(message.words, len(message.words) // 8)
    if not words[:-1].any():
        return None
    words[:-1] = 0
    return change(message, words=ring.to_bytes(words))


def hidden(world: World, message: Total) -> Total | None:
    if world.role.run is None or world.role.run.announced.protocol != "collect":
        return None
    words = ring.from_bytes(message.words, len(message.words) // 8)
    words[world.rng.randrange(len(words) - 1)] = np.uint64(world.rng.randrange(1, 2**64))
    return change(message, words=ring.to_bytes(words))


def ended(world: World, message: Any, homes: list[int]) -> Posted | None:
    """One agent hears that the run is over, one way or the other, while it goes on for the others."""
    if not isinstance(message, Total):
        return None
    end = world.rng.choice([Finished(run=message.run), Abort(run=message.run, reason="\nno\x1b[2J")])
    victim = world.rng.choice(homes)
    return [(victim, end), *((i, message) for i in homes)]


def twice(world: World, message: Any, homes: list[int]) -> Posted | None:
    return [(i, message) for i in homes for _ in range(2)]


def out_of_order(world: World, message: Any, homes: list[int]) -> Posted | None:
    """A message that belongs earlier or later comes in between."""
    if not world.past:
        return None
    return [(i, each) for i in homes for each in (world.rng.choice(world.past[-6:]), message)]


def cut(world: World, message: Any) -> Any:
    """A sum, a box or keys that are shorter than they say."""
    for name in ("words", "box", "signatures"):
        if hasattr(message, name):
            return change(message, **{name: getattr(message, name)[: -world.rng.choice([1, 8, 32])]})
    return None


def old_announcement(world: World, message: Any, homes: list[int]) -> Posted | None:
    """In the middle of a run an announcement of an earlier one comes, as it was or as if it were newer than all."""
    known = [each for each in world.past if isinstance(each, Announce)]
    if not known or isinstance(message, Announce):
        return None
    again = world.rng.choice(known)
    if world.rng.random() < 0.5:
        again = change(again, attempt=10**6 + world.attempt)
    victim = world.rng.choice(homes)
    return [(victim, again), *((i, message) for i in homes)]


def left_out_of_sum(world: World, message: Total) -> Total:
    """A sum without one agent's words: the aggregator takes off what that agent sent."""
    sent = world.sums[message.run, message.step]
    words = ring.from_bytes(message.words, len(message.words) // 8)
    return change(message, words=ring.to_bytes(words - ring.from_bytes(sent[0], len(words))))


# What the aggregator asks


def asks(other: Callable[..., Any], **rest: Any) -> Callable[..., dict[str, Any] | None]:
    def ask(world: World, plan: Any) -> dict[str, Any] | None:
        found = other(world, plan)
        return None if found is None else {"plan": found, **rest}

    return ask


def last_plan(kind: type) -> Callable[..., Any]:
    return lambda world: next((plan for plan in reversed(world.asked) if isinstance(plan, kind)), None)


def again(world: World, plan: Any) -> Any:
    return world.asked[0] if world.asked else None


def other_fit(**changes: Callable[..., Any]) -> Callable[..., Any]:
    """A fit that was asked for before, with another number in its plan."""

    def ask(world: World, plan: Any) -> Any:
        known = last_plan(Plan)(world)
        return known and change(known, **{name: of(getattr(known, name)) for name, of in changes.items()})

    return ask


def other_weighting(world: World, plan: Any) -> Any:
    """Equal weights over days that were fitted, or a fit over days that were collected."""
    known = world.asked[-1] if world.asked else None
    if isinstance(known, Plan):
        return Collect(step_seconds=known.step_seconds, start=known.start, length=known.length)
    return None if known is None else world.fit_over(known.start // DAY, 6)


def other_grid(world: World, plan: Any) -> Any:
    known = last_plan(Collect)(world)
    return known and change(known, step_seconds=2 * known.step_seconds, length=max(known.length // 2, 1), asked=b"")


def shifted(world: World, plan: Any) -> Any:
    """A window that overlaps one that was fitted."""
    known = last_plan(Plan)(world)
    return known and world.fit_over(known.start // DAY + world.rng.choice([-2, -1, 1, 2]), 6)


def unknown_fit(world: World, plan: Any) -> Any:
    return change(plan, fit=world.rng.randbytes(32)) if isinstance(plan, Collect) else None


def not_yet(world: World, plan: Any) -> Any:
    """Days that have not come, from an aggregator whose clock is ahead."""
    return change(plan, start=plan.start + world.rng.choice([2, 20, 400, 10**6]) * DAY)


def wrong_weather(world: World, plan: Any) -> Any:
    return change(plan, weather=world.rng.randbytes(32)) if isinstance(plan, Plan) else None


def rows_again(world: World, plan: Any) -> Any:
    """A part of rows that were collected before."""
    known = last_plan(Collect)(world)
    return known and fewer_rows(world, known)


def other_roster(world: World, plan: Any) -> dict[str, Any] | None:
    """An older roster, one without somebody, or one of an authority of the aggregator's own."""
    rng, now = world.rng, world.roster
    members = [(m.name, m.owner, m.identity) for m in now.members]
    forged = (sign_roster(world.rogue, members, now.serial + 1), change(now, members=now.members[1:]))
    return {"roster": rng.choice([*world.rosters[:-1], *forged, change(now, serial=now.serial + 1)])}


# Whom the aggregator chooses


def without_one(world: World, answers: Any) -> Any:
    inside = [place for place, days in answers.items() if days.any()]
    if len(inside) < 3:
        raise RunAborted("nobody to sum with")
    inside.remove(world.rng.choice(inside))
    return company_of(inside, answers)


def few(world: World, answers: Any) -> Any:
    inside = [place for place, days in answers.items() if days.any()]
    if len(inside) < 2:
        raise RunAborted("nobody to sum with")
    return company_of(sorted(inside)[: world.rng.randint(2, max(2, len(inside) // 2))], answers)


def company_of(company: list[int], answers: Any) -> Any:
    days = np.logical_and.reduce([answers[place] for place in company])
    if not days.any():
        raise RunAborted("no day in common")
    return sorted(company), days


# What a leader sends


def leads(world: World) -> Any:
    """The liar's part of the run, where it leads one."""
    agent = world.homes[world.liar].agent
    part = agent.part if agent is not None else None
    return part if part is not None and hasattr(part, "_veil") and part.session.leads else None


def group_secret(whole: bool) -> Callable[..., Any]:
    """The group secret of one agent: another one, well sealed, or garbage."""

    def up(world: World, message: Any) -> list[Any] | None:
        part = leads(world)
        if not isinstance(message, Secrets) or part is None:
            return None
        run, k = part.session.run, world.rng.randrange(1, part.session.run.agents)
        box = world.rng.randbytes(48)
        if whole:
            box = seal(part.session.pair_key(k), world.rng.randbytes(32), run.id, purpose="group",
                       sender=run.members[0].identity, receiver=run.members[k].identity)  # fmt: skip
        return [change(message, boxes=message.boxes[: 48 * (k - 1)] + box + message.boxes[48 * k :])]

    return up


def resealed(world: World, message: Any) -> Seal | None:
    """The leader's seal with one of its numbers changed."""
    part, desk = leads(world), world.role.desk
    if not isinstance(message, Seal) or part is None or desk is None or desk.run.id != message.run or desk._seal:
        return None
    key = derive(part._group, "seal", message.run, desk._context)
    ends = {"purpose": "seal", "sender": part.session.run.members[0].identity, "receiver": "agents"}
    numbers = np.frombuffer(open_sealed(key, message.box, **ends), "<f8").copy()
    numbers[world.rng.randrange(len(numbers) - 4)] *= world.rng.choice([1 + 1e-6, -1.0, np.nan, np.inf, 1 + 1e-12])
    return change(message, box=seal(key, numbers.tobytes(), **ends))


def altered_seal(world: World, message: Any) -> list[Any] | None:
    found = resealed(world, message)
    return found and [found]


def a_second_seal(world: World, message: Any) -> list[Any] | None:
    world.kept["seal"] = resealed(world, message) or world.kept.get("seal")
    return None


def two_seals(world: World, message: Any, homes: list[int]) -> Posted | None:
    """With the aggregator's help one agent sees another seal."""
    other = world.kept.get("seal")
    if not isinstance(message, Seal) or other is None or other.run != message.run:
        return None
    return [(i, other if i == homes[0] else message) for i in homes]


def other_numbers(world: World, message: Any) -> list[Any] | None:
    """What is released is not what was sealed: a word of the leader's box is another, under the right key."""
    part = leads(world)
    if not isinstance(message, Release) or part is None:
        return None
    key = derive(part.session.seed, "release key")
    told = open_release(key, message.box, message.run).copy()
    told.view(np.uint64)[world.rng.randrange(len(told))] += np.uint64(1)
    return [change(message, box=seal_release(key, told, message.run))]


def other_numbers_vouched(world: World, message: Any) -> list[Any] | None:
    """And the leader vouches for them."""
    found = other_numbers(world, message)
    if found is None:
        return None
    part = leads(world)
    told = open_release(derive(part.session.seed, "release key"), found[0].box, message.run)
    hashed = vouched(message.run, part._veil.context, told)
    signature = world.homes[world.liar].key.sign("vouch", VERSION, hashed)
    return [change(found[0], hash=hashed, signature=signature)]


def other_release_key(world: World, message: Any) -> list[Any] | None:
    if not isinstance(message, Release) or leads(world) is None:
        return None
    return [change(message, words=offset(message.words, world))]


def seals_twice(world: World, message: Any) -> list[Any] | None:
    return [message, change(message, box=message.box + b"\0"), message] if isinstance(message, Seal) else None


def no_seal(world: World, message: Any) -> list[Any] | None:
    return [] if isinstance(message, Seal) else None


# What an agent sends


def falsified(phases: tuple[str, ...], by: Callable[..., int], block: str, agree: bool = True) -> Callable[..., Any]:
    """A word of a sum is another; agree: its check words follow, for the liar has their keys."""

    def up(world: World, message: Any) -> list[Any] | None:
        agent = world.homes[world.liar].agent
        part = agent.part if agent is not None else None
        if not isinstance(message, Masked) or message.phase not in phases or part is None:
            return None
        words = ring.from_bytes(message.words, len(message.words) // 8)
        layout = part._veil.layout if hasattr(part, "_veil") else part.layout
        at = layout._at[block]
        k = world.rng.randrange(at.start, at.stop)
        delta = np.uint64(by(world) % 2**64)
        words[k] += delta
        if agree and hasattr(part, "_veil"):
            words[-ring.CHECK_WORDS :] += part._veil._keys[:, k] * delta
        if block == "load":
            stamps = part.kept if hasattr(part, "_veil") else part.times[world.offered(part)]
            scale = next(2.0**each.bits for each in layout.blocks if each.name == "load")
            world.false[message.run, int(stamps[k - at.start])] = int(delta.astype(np.int64)) / scale
        return [change(message, words=ring.to_bytes(words))]

    return up


def vouches(signed: bool) -> Callable[..., Any]:
    def up(world: World, message: Any) -> list[Any] | None:
        if not isinstance(message, Release):
            return None
        hashed = world.rng.randbytes(32)
        signature = world.homes[world.liar].key.sign("vouch", VERSION, hashed) if signed else message.signature
        return [change(message, hash=hashed, signature=signature)]

    return up


def replays(kind: type, renamed: bool) -> Callable[..., Any]:
    def up(world: World, message: Any) -> list[Any] | None:
        known = [each for each in world.own_past if type(each) is kind and each != message]
        if not isinstance(message, kind) or not known:
            return None
        found = world.rng.choice(known)
        names = [name for name in ("run", "step", "phase") if hasattr(message, name)]
        return [change(found, **{k: getattr(message, k) for k in names}) if renamed else found]

    return up


def two_answers(world: World, message: Any) -> list[Any] | None:
    """Two different messages for one step."""
    if isinstance(message, Masked):
        return [message, change(message, words=offset(message.words, world))]
    if isinstance(message, Ready):
        return [message, change(message, reason="another")]
    return None


def in_everywhere(world: World, message: Any) -> list[Any] | None:
    """In on every day, whatever it has or gave, under its signature."""
    if not isinstance(message, Ready):
        return None
    announce, days, key = world.role._announce, every_day(world), world.homes[world.liar].key
    signature = key.sign("ready", announce_hash(announce), days, message.nonce, message.exchange)
    return [change(message, days=days, reason="", signature=signature)] if days != message.days else None


def anothers_key(world: World, message: Any) -> list[Any] | None:
    """Nonce and exchange key of another agent, under the liar's signature."""
    others = [ready for i, ready in world.answers.items() if i != world.liar]
    if not isinstance(message, Ready) or not others:
        return None
    other, key = world.rng.choice(others), world.homes[world.liar].key
    signature = key.sign("ready", announce_hash(world.role._announce), message.days, other.nonce, other.exchange)
    return [change(message, nonce=other.nonce, exchange=other.exchange, signature=signature)]


def always_the_same_key(world: World) -> bool:
    world.homes[world.liar].draw = lambda n: b"s" * n
    return True


def ground(world: World) -> bool:
    """The smallest of sixteen nonces: what an agent that answers last could choose."""
    home, draw = world.homes[world.liar], world.homes[world.liar].draw
    home.draw = lambda n: min((draw(n) for _ in range(16)), key=lambda seed: derive(seed, "nonce"))
    return True


def also_seals(world: World, message: Any) -> list[Any] | None:
    """A seal, or sealed secrets, from one who does not lead."""
    if not isinstance(message, Masked | Release) or leads(world) is not None:
        return None
    rng = world.rng
    return [Secrets(run=message.run, boxes=rng.randbytes(48 * 3)),
            Seal(run=message.run, step=message.step, box=rng.randbytes(200)), message]  # fmt: skip


def leaves(world: World, message: Any) -> list[Any] | None:
    return [Refuse(reason="zone: \n\x1b[2J" + 999 * "no")] if isinstance(message, Masked) else None


def forged(world: World, message: Any, homes: list[int]) -> Posted | None:
    """The liar gave the group secret away: the aggregator makes totals that open, to numbers of its choice."""
    agent = world.homes[world.liar].agent
    part = agent.part if agent is not None else None
    if not isinstance(message, Total) or not hasattr(part, "_veil") or part.session.run.id != message.run:
        return None
    if not part.step == message.step > 0 or not part._veil.veiled:
        return None
    veil, rng = part._veil, world.rng
    total = ring.from_bytes(message.words, len(message.words) // 8)
    plain = (total - veil._veil)[: -ring.CHECK_WORDS].view(np.int64).copy()
    at = veil.layout._at[rng.choice([block.name for block in veil.layout.blocks if block.size])]
    way = rng.choice(["scale", "zero", "noise", "turn"])
    part_of = plain[at].astype(float)
    noise = np.array([rng.gauss(0, 1) for _ in part_of]) * (np.abs(part_of).max() + 1)
    changed = {"scale": part_of * 10.0 ** rng.uniform(-4, 1), "zero": 0 * part_of, "turn": -part_of,
               "noise": part_of + noise * 10.0 ** rng.uniform(-6, 0)}[way]  # fmt: skip
    most = veil.layout._most[at] * veil.layout._scale[at] * part.session.run.agents
    plain[at] = np.rint(np.clip(changed, -0.99 * most, 0.99 * most)).astype(np.int64)
    words = plain.view(np.uint64)
    data = ring.to_bytes(np.concatenate([words, ring.check_words(words, veil._keys)]) + veil._veil)
    return [(i, change(message, words=data)) for i in homes]


def small(world: World) -> int:
    return world.rng.choice([-1, 1]) * world.rng.randrange(1, 2**20)


def huge(world: World) -> int:
    return world.rng.choice([-1, 1]) << world.rng.randrange(49, 63)


A, L, G = "aggregator", "leader", "agent"

LIES = {
    # Sums
    "forged total": Lie(liar=A, does="adds a number to a word of a total", spoils=True,
                        down=on(Total, off_by_a_bit)),
    "forged for one": Lie(liar=A, does="shows one agent another total than the others", spoils=True,
                          down=on(Total, off_by_a_bit, some=True)),
    "earlier total": Lie(liar=A, does="shows a total of an earlier step or run under the name of this one", spoils=True,
                         down=on(Total, earlier(Total, renamed=True))),
    "sum without one": Lie(liar=A, does="takes one agent's words off a total", down=on(Total, left_out_of_sum)),
    "rows claimed": Lie(liar=A, does="says of rows that somebody lacks that everybody offered them", spoils=True,
                        down=on(Total, claimed)),
    "rows hidden": Lie(liar=A, does="hides an offered row from all agents", spoils=True, down=on(Total, hidden)),
    "rows hidden from one": Lie(liar=A, does="hides an offered row from one agent", down=on(Total, hidden, some=True)),
    # Boxes
    "altered seal": Lie(liar=A, does="flips a bit of the leader's seal",
                        down=on(Seal, flipped)),
    "earlier seal": Lie(liar=A, does="passes a seal of an earlier run on", down=on(Seal, earlier(Seal, renamed=True))),
    "altered secret": Lie(liar=A, does="flips a bit of a sealed group secret",
                          down=on(Secret, flipped)),
    "secrets swapped": Lie(liar=A, does="gives an agent the group secret sealed for another", down=swapped_secrets),
    # Keys, companies, days
    "earlier keys": Lie(liar=A, does="sends the keys of an earlier run", down=on(Keys, earlier(Keys))),
    "own key": Lie(liar=A, does="puts a key of its own in an agent's place", down=on(Keys, another_key)),
    "own key for one": Lie(liar=A, does="shows one agent a key of its own in another's place",
                           down=on(Keys, another_key, some=True)),
    "all days": Lie(liar=A, does="names days on which a member is out", down=on(Keys, all_days)),
    "two companies": Lie(liar=A, does="shows some agents one company and others another, at once", down=two_companies),
    "another company": Lie(liar=A, does="leaves somebody else out every time, and asks for the same days again",
                           choose=without_one, ask=asks(again)),
    "small company": Lie(liar=A, does="drops answers until half of the agents or fewer are left", choose=few),
    "two plans": Lie(liar=A, does="announces another plan, or other rows, to half of the agents", down=two_plans),
    "another roster": Lie(liar=A, does="announces an older, a shorter or a forged roster", ask=other_roster),
    # Questions
    "same question": Lie(liar=A, does="asks the first question again and again", ask=asks(again)),
    "rows again": Lie(liar=A, does="asks for parts of rows that it had", ask=asks(rows_again)),
    "another ridge": Lie(liar=A, does="asks for a fit again with another λ",
                         ask=asks(other_fit(ridge=lambda v: v + 1.0))),
    "another clip": Lie(liar=A, does="asks for a fit again with another clip",
                        ask=asks(other_fit(clip=lambda v: v / 2))),
    "more totals": Lie(liar=A, does="asks for more totals than agents give",
                       ask=asks(other_fit(totals=lambda v: v + 3))),
    "another window": Lie(liar=A, does="asks for a fit over days that overlap another's", ask=asks(shifted)),
    "other weights": Lie(liar=A, does="asks for fitted days with equal weights, and the other way round",
                         ask=asks(other_weighting)),
    "another grid": Lie(liar=A, does="asks for collected days with twice the step", ask=asks(other_grid)),
    "unknown fit": Lie(liar=A, does="asks for rows under the weights of a fit that never was", ask=asks(unknown_fit)),
    "wrong weather": Lie(liar=A, does="announces a hash of other weather",
                         ask=asks(wrong_weather)),
    "clock ahead": Lie(liar=A, does="asks for days that have not come, in an announcement newer than all",
                       ask=asks(not_yet, attempt=10**9)),
    # Order
    "old announcement": Lie(liar=A, does="announces an earlier run in the middle of another, as it was or as newer",
                            down=old_announcement),
    "early end": Lie(liar=A, does="tells one agent that the run is over", down=ended),
    "everything twice": Lie(liar=A, does="sends every message twice", down=twice),
    "out of order": Lie(liar=A, does="sends messages of before in between", down=out_of_order),
    "cut short": Lie(liar=A, does="cuts sums, boxes and keys short", down=on(object, cut)),
    # The leader
    "two group secrets": Lie(liar=L, does="seals another group secret for one agent", up=group_secret(True)),
    "garbled secret": Lie(liar=L, does="sends one agent a secret that does not open", up=group_secret(False)),
    "wrong seal": Lie(liar=L, does="seals a number that the sums do not give", up=altered_seal),
    "two seals": Lie(liar=L, does="seals other numbers for one agent, with the aggregator's help",
                     up=a_second_seal, down=two_seals),
    "other numbers": Lie(liar=L, does="releases other numbers than it sealed", up=other_numbers),
    "other numbers, vouched": Lie(liar=L, does="releases other numbers and vouches for them", up=other_numbers_vouched),
    "wrong release key": Lie(liar=L, does="sends a key that does not open its box", up=other_release_key),
    "seals twice": Lie(liar=L, does="sends two different seals", up=seals_twice),
    "no seal": Lie(liar=L, does="does not seal", up=no_seal),
    # Agents
    "word out of range": Lie(liar=G, does="adds more than 2⁴⁸ to a word, check words to match",
                             up=falsified(("open", "step"), huge, "total")),
    "wrong word": Lie(liar=G, does="alters a word of a sum and not its check words",
                      up=falsified(("open", "step"), small, "total", agree=False)),
    "false reading": Lie(liar=G, does="gives another load than it measured, check words to match",
                         up=falsified(("open", "show"), small, "load"), spoils=True),
    "false Gram row": Lie(liar=G, does="makes up its part of QᵀQ, check words to match",
                          up=falsified(("step",), small, "gram"), spoils=True),
    "false residual": Lie(liar=G, does="makes up its squares, which decide when to stop",
                          up=falsified(("step", "signs"), small, "squares"), spoils=True),
    "others' flags": Lie(liar=G, does="takes back what another said of a row it lacks",
                         up=falsified(("rows",), lambda w: -1, "missing"), spoils=True),
    "wrong vouch": Lie(liar=G, does="vouches for other numbers", up=vouches(True)),
    "unsigned vouch": Lie(liar=G, does="vouches for other numbers without a signature", up=vouches(False)),
    "earlier words": Lie(liar=G, does="sends words of an earlier sum as those of this one",
                         up=replays(Masked, True), spoils=True),
    "earlier answer": Lie(liar=G, does="answers an announcement with what it signed for another",
                          up=replays(Ready, False)),
    "two answers": Lie(liar=G, does="sends two different messages for one step", up=two_answers, spoils=True),
    "in on every day": Lie(liar=G, does="says that it is in on days it has nothing of", up=in_everywhere),
    "another's key": Lie(liar=G, does="shows another agent's nonce and key as its own", up=anothers_key),
    "one key for ever": Lie(liar=G, does="uses one nonce and key for all runs", begin=always_the_same_key),
    "nonce ground": Lie(liar=G, does="chooses its nonce among many", begin=ground),
    "seals too": Lie(liar=G, does="seals secrets and numbers though it does not lead", up=also_seals),
    "leaves": Lie(liar=G, does="leaves in the middle, with a text that is none", up=leaves),
    "secret given away": Lie(liar=G, does="gives the group secret to the aggregator, which forges totals that open",
                             down=forged, spoils=True),
}  # fmt: skip
