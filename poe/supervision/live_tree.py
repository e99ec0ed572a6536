"""The live tree of supervisors and their children: an actor in, rows out, and rows to lines.

`tree` reads the actors where they are, under the lock of their system and without a message: it
disturbs nobody, and shows a supervisor that is busy with a start as such instead of waiting for it.
`render_tree` is a pure function, so that rows may come from another process.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from poe.actors.actor_cell import LoopAddress
from poe.actors.actor_info import (
    ActorInfo,
    ActorState,
    actor_info,
    is_at_rest,
    queued_messages,
    role_of,
)
from poe.actors.server_cell import ServerCell
from poe.errors.short_text import printable, short_repr
from poe.supervision.api import ChildInfo
from poe.supervision.child_spec import ChildKind
from poe.supervision.strategy import RESTARTING
from poe.supervision.supervisor import Supervisor, SupervisorBehaviour

ALIKE_MAX: Final = 20
ROWS_MAX: Final = 10_000
TEXT_MAX: Final = 200
"""Characters of an id, a role, a name or a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """One actor, one child that has none at present, or several actors alike."""

    depth: int
    """0 for the root; a row's children are the rows of the next depth that follow it."""
    id: str = ""
    """Of the child spec; empty where there is none."""
    actor: str = ""
    """Name of the actor's class; empty where there is no actor."""
    ref: str = ""
    name: str = ""
    """Under which it is registered; empty without one."""
    kind: str = "worker"
    """worker or supervisor."""
    strategy: str = ""
    """Of a supervisor; empty for others."""
    role: str = ""
    """What the actor tells of itself by `describe_role`."""
    state: str
    """running, starting, busy (in a callback that awaits something), suspended, stopping, ended,
    restarting (another try to start it is queued) or stopped (it has a spec and no actor)."""
    awaits: str = ""
    """The actor that a busy one waits for."""
    mailbox_length: int = 0
    """Messages that it has not begun with."""
    restarts: int = 0
    """By its supervisor, alone or with its group."""
    last_reason: str = ""
    """Why it last ended or did not start, shortened; empty before the first time."""
    children_restarts: int = 0
    """Of a supervisor: how many restarts it has carried out."""
    children_last_reason: str = ""
    """Of a supervisor: why a child last ended or did not start, also one that is forgotten."""
    count: int = 1
    """How many actors this row stands for; `mailbox_length` and `restarts` are their sums."""


def tree(root: LoopAddress, *, all_rows: bool = False) -> list[TreeRow]:
    """Return the actor `root` and all below it: children of supervisors, linked children of others.

    Children follow their parent, in start order. May be used in an actor and in any application
    thread, which waits for the callback that runs at the moment. 10 000 rows at most.

    Args:
        root: mostly a supervisor.
        all_rows: list each child. Otherwise a supervisor of more than 20 has up to 20 listed, of
            which there is something to tell (they crashed, are not running, have messages or
            children of their own), and the others summed up by class and state.

    Raises:
        TypeError: `root` is no ref of an actor of a `LoopSystem`, whose actors can be seen.
    """
    if not _can_be_seen(root):
        msg = f"tree takes the ref of an actor of a LoopSystem, not {root!r}; see `whereis`"
        raise TypeError(msg)
    run_queue = root.cell.run_queue
    rows: list[TreeRow] = []

    def look() -> None:
        alike_max = None if all_rows else ALIKE_MAX
        rows.extend(islice(_rows(root, queued_messages(run_queue), alike_max), ROWS_MAX))

    if run_queue.is_running_here():
        look()
    else:
        run_queue.run_outside(look)
    return rows


def _can_be_seen(root: object) -> bool:
    return isinstance(root, LoopAddress) and root.cell.system.has_all_actors


def _rows(
    root: LoopAddress, queued: Mapping[object, int], alike_max: int | None
) -> Iterator[TreeRow]:
    # A stack of our own: a tree may be deeper than Python's.
    left: list[tuple[int, ChildInfo | TreeRow]] = [(0, _without_spec(root))]
    while left:
        depth, entry = left.pop()
        if isinstance(entry, TreeRow):
            yield replace(entry, depth=depth)
        else:
            yield _row(entry, queued, depth)
            below = list(_below(entry.ref, queued, alike_max))
            left.extend((depth + 1, each) for each in reversed(below))


def _below(
    ref: object, queued: Mapping[object, int], alike_max: int | None
) -> Iterable[ChildInfo | TreeRow]:
    """Return the children of one actor; where they are too many, alike ones as one row."""
    if not isinstance(ref, LoopAddress):
        return ()
    cell = ref.cell
    if not isinstance(cell, ServerCell) or not isinstance(cell.instance, Supervisor):
        cells = [cell for cell in ref.cell.links or () if cell.parent is ref.cell]
        cells.sort(key=lambda cell: cell.address.serial)
        return [_without_spec(cell.address) for cell in cells]
    behaviour: SupervisorBehaviour | None = cell.behaviour
    infos = () if behaviour is None else behaviour.children.infos()
    children = list(islice(infos, ROWS_MAX if alike_max is None else None))
    if alike_max is not None and len(children) > alike_max:
        return _sum_up(children, queued, alike_max)
    # The child that is being started has no slot yet.
    started = actor_info(ref, queued).awaits
    if started is not None and started.cell.instance and started.cell.parent is ref.cell:
        children.append(_without_spec(started))
    return children


def _without_spec(ref: LoopAddress) -> ChildInfo:
    is_supervisor = isinstance(ref.cell.instance, Supervisor)
    return ChildInfo(None, ref, ChildKind.SUPERVISOR if is_supervisor else ChildKind.WORKER)


def _sum_up(
    children: Iterable[ChildInfo], queued: Mapping[object, int], listed_max: int
) -> Iterator[ChildInfo | TreeRow]:
    """List children of which there is something to tell, and sum up the others."""
    sums: dict[tuple[str, str, str], tuple[int, int, int]] = {}
    at_rest: Counter[type] = Counter()
    for child in children:
        ref = child.ref
        is_plain = child.kind is ChildKind.WORKER and not child.restarts
        if is_plain and isinstance(ref, LoopAddress) and is_at_rest(ref, queued):
            at_rest[type(ref.cell.instance)] += 1
            continue
        seen = _look(child, queued)
        is_plain = seen.state == ActorState.RUNNING and child.kind is ChildKind.WORKER
        if listed_max and not (is_plain and not seen.mailbox_length and not child.restarts):
            listed_max -= 1
            yield child
        else:
            key = seen.actor, child.kind, seen.state
            count, messages, restarts = sums.get(key, (0, 0, 0))
            sums[key] = count + 1, messages + seen.mailbox_length, restarts + child.restarts
    for actor_class, at_rest_count in at_rest.items():
        key = actor_class.__name__, ChildKind.WORKER, ActorState.RUNNING
        count, messages, restarts = sums.get(key, (0, 0, 0))
        sums[key] = count + at_rest_count, messages, restarts
    for (actor, kind, state), (count, messages, restarts) in sums.items():
        yield TreeRow(
            depth=0,
            actor=actor,
            kind=kind,
            state=state,
            mailbox_length=messages,
            restarts=restarts,
            count=count,
        )


def _look(child: ChildInfo, queued: Mapping[object, int]) -> ActorInfo:
    """Look at a child's actor, if it has one."""
    if isinstance(child.ref, LoopAddress):
        return actor_info(child.ref, queued)
    return _RESTARTING if child.ref is RESTARTING else _STOPPED


def _row(child: ChildInfo, queued: Mapping[object, int], depth: int) -> TreeRow:
    seen, ref = _look(child, queued), child.ref
    row = TreeRow(
        depth=depth,
        id="" if child.id is None else _text(child.id),
        actor=seen.actor,
        name=_text(seen.name or ""),
        kind=child.kind,
        state=seen.state,
        awaits=str(seen.awaits or ""),
        mailbox_length=seen.mailbox_length,
        restarts=child.restarts,
        last_reason=_text(child.last_reason),
    )
    if not isinstance(ref, LoopAddress):
        return row
    row = replace(row, ref=str(ref), role=_text(role_of(ref)))
    cell = ref.cell
    if not isinstance(cell, ServerCell) or not isinstance(cell.behaviour, SupervisorBehaviour):
        return row
    keeper = cell.behaviour.children
    return replace(
        row,
        strategy=keeper.strategy,
        children_restarts=keeper.crashes.restarts,
        children_last_reason=_text(keeper.crashes.last_reason),
    )


_STOPPED = ActorInfo("", None, "stopped", None, 0)
_RESTARTING = ActorInfo("", None, "restarting", None, 0)


def _text(value: Hashable) -> str:
    """Return a text that is short and fit for a frame: names may hold surrogates."""
    text = value if isinstance(value, str) else short_repr(value)
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


# ---- rows to lines -------------------------------------------------------------------------------

_TITLES = ("actor", "state", "restarts", "mailbox", "last reason")


def render_tree(rows: Sequence[TreeRow]) -> list[str]:
    """Return a heading and a line for each row, aligned in columns."""
    table: list[tuple[str, ...]] = [_TITLES]
    for row, branch in zip(rows, _branches(rows), strict=True):
        state = f"{row.state}, awaits {row.awaits}" if row.awaits else row.state
        counts = str(row.restarts), str(row.mailbox_length)
        cells = branch + _label(row), state, *counts, row.last_reason
        table.append(tuple(map(printable, cells)))
    widths = [max(len(cells[column]) for cells in table) for column in range(len(_TITLES))]
    return [
        f"{label:{widths[0]}}  {state:{widths[1]}}  {restarts:>{widths[2]}}  "
        f"{mailbox:>{widths[3]}}  {reason}".rstrip()
        for label, state, restarts, mailbox, reason in table
    ]


def _label(row: TreeRow) -> str:
    """Name one row: `bank Supervisor.2 (one_for_one, 1 restart, last ValueError)`."""
    if row.count > 1:
        return f"{row.actor or 'child'} ×{row.count:,}".replace(",", " ")
    names = [row.id, row.name if row.name != row.id else "", row.ref or row.actor, row.role]
    notes = [row.strategy] if row.strategy else []
    if row.children_restarts:
        times = "restart" if row.children_restarts == 1 else "restarts"
        notes.append(f"{row.children_restarts} {times}")
    if row.children_last_reason:
        notes.append(f"last {row.children_last_reason}")
    note = f"({', '.join(notes)})" if notes else ""
    return " ".join(part for part in (*names, note) if part)


def _branches(rows: Sequence[TreeRow]) -> list[str]:
    """Return the lines to the left of each row; from the last one up, since each looks ahead."""
    branches = [""] * len(rows)
    goes_on: list[bool] = []
    """For each depth, whether a row of it follows below without a parent in between."""
    for number in range(len(rows) - 1, -1, -1):
        depth = rows[number].depth
        goes_on = [*goes_on[: depth + 1], *[False] * (depth + 1 - len(goes_on))]
        if depth:
            stems = ("│   " if follows else "    " for follows in goes_on[1:depth])
            branches[number] = "".join(stems) + ("├── " if goes_on[depth] else "└── ")
        goes_on[depth] = True
    return branches
