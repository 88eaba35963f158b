"""What must hold among the raw facts of a box stage, whatever total they lead to."""

from __future__ import annotations

from collections.abc import Iterator

from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.box import BoxAttempt, BoxCardRun, BoxRole, BoxWindow
from npumark.record.model import Payload
from npumark.score.box import judged, role_cards, wants_attempt
from npumark.score.difference import Difference

NS = 1_000_000_000

MIN_TOPS, MAX_TOPS = 1e-12, 1e15
"""Every peak that another record states lies between: from one operation a second to far beyond
any machine, and far from where a sum of many, or a share of one, overflows."""

NEVER = "names nothing that the record or the manifest holds"


def box_structure(payload: Payload, manifest: Manifest) -> Iterator[Difference]:
    """Yield what keeps a box stage from being recomputed at all."""
    for i, solo in enumerate(payload.plan.box.solo):
        if not MIN_TOPS <= solo.tops <= MAX_TOPS:
            yield Difference(f"plan.box.solo[{i}].tops", solo.tops, None, "no rate of a card")
    for path, attempt in _attempts(payload):
        for k, run in enumerate(attempt.cards):
            if run.workload not in manifest.workloads:
                yield Difference(f"{path}.cards[{k}].workload", run.workload, None, NEVER)


def box_consistency(payload: Payload, manifest: Manifest, policy: Policy) -> Iterator[Difference]:
    """Yield every raw fact of the box stage that contradicts another or the rules it follows."""
    for i, solo in enumerate(payload.plan.box.solo):
        if solo.source is None:
            why = "a peak that was given to the run is another record's"
            yield Difference(f"plan.box.solo[{i}].source", None, None, why)
        elif solo.source.quick and not payload.plan.quick:
            why = "a run that is not quick takes no peaks from one that is"
            yield Difference(f"plan.box.solo[{i}].source.quick", True, False, why)
    if payload.box is None:
        return
    yield from _after_all(payload)
    virtual = {e.id for e in payload.engines if e.virtual}
    for path, attempt in _attempts(payload):
        if attempt.status == "ran" and attempt.why is not None:
            why = "an attempt that ran was ended by nothing"
            yield Difference(f"{path}.why", attempt.why, None, why)
        if attempt.window_ns != round(policy.box.window_s * NS):
            due = round(policy.box.window_s * NS)
            yield Difference(f"{path}.window_ns", attempt.window_ns, due, "the policy's window")
        for k, run in enumerate(attempt.cards):
            at = f"{path}.cards[{k}]"
            yield from _card(at, run)
            if run.window is None:
                continue
            yield from _window(f"{at}.window", run.window, attempt.window_ns)
            if run.engine not in virtual:
                yield from _fits(at, attempt, run.window)
            inputs = manifest.workloads[run.workload].eval.n
            yield from _check(f"{at}.window.check", run.window, inputs)
    for i, role in enumerate(payload.box.roles):
        yield from _cards(f"box.roles[{i}]", role)
    yield from _turns(payload, manifest, policy)


def _attempts(payload: Payload) -> Iterator[tuple[str, BoxAttempt]]:
    roles = payload.box.roles if payload.box else []
    for i, role in enumerate(roles):
        for j, attempt in enumerate(role.attempts):
            yield f"box.roles[{i}].attempts[{j}]", attempt


def _after_all(payload: Payload) -> Iterator[Difference]:
    """Check that no attempt of the box stage began before all others had begun."""
    last = max((a.started_ns for e in payload.entries for a in e.attempts), default=-1)
    for path, attempt in _attempts(payload):
        if attempt.started_ns <= last:
            why = "the box stage comes after every scored stage"
            yield Difference(f"{path}.started_ns", attempt.started_ns, last + 1, why)


def _cards(path: str, role: BoxRole) -> Iterator[Difference]:
    """Check that each attempt ran exactly the role's cards, as they were measured alone."""
    due = [(c.solo.card, c.solo.engine, c.solo.workload, c.solo.variant) for c in role.cards]
    for j, attempt in enumerate(role.attempts):
        ran = [(r.card, r.engine, r.workload, r.variant) for r in attempt.cards]
        # An attempt that a killed run left behind tells nothing of its cards.
        lost = attempt.status == "interrupted" and not ran
        if attempt.status == "skipped":
            due = []
        if ran != due and not lost:
            why = "not every card with its best solo configuration"
            yield Difference(f"{path}.attempts[{j}].cards", ran, due, why)


def _card(path: str, run: BoxCardRun) -> Iterator[Difference]:
    if (run.window is not None) != (run.status == "ok"):
        why = "a card is ok if, and only if, it ran to the window's end"
        yield Difference(f"{path}.status", run.status, None, why)
    if run.status == "ok" and run.pid_exit not in (0, None):
        yield Difference(f"{path}.pid_exit", run.pid_exit, 0, "a failed worker has no result")
    for name in ("why", "log_tail") if run.status == "ok" else ():
        if getattr(run, name) is not None:
            why = "a card that ran to the window's end failed for no reason"
            yield Difference(f"{path}.{name}", getattr(run, name), None, why)
    pin = run.pin
    if (pin.cpus is None) != (pin.why is not None):
        why = "what is not known, alone, has a reason"
        yield Difference(f"{path}.pin.why", pin.why, None, why)
    if pin.cpus is not None and (not pin.cpus or pin.numa_node is None):
        why = "a worker that is bound runs on CPUs of a node"
        yield Difference(f"{path}.pin.cpus", pin.cpus, None, why)


def _window(path: str, seen: BoxWindow, window_ns: int) -> Iterator[Difference]:
    """Check one card's calls: one after the other from the first, which never began early; the
    last of them ends the window."""
    if seen.late_ns < 0:
        yield Difference(f"{path}.late_ns", seen.late_ns, 0, "no call begins before the start")
    if len(seen.straddling) > 1:
        why = "at most one call of a loop lies across the window's end"
        yield Difference(f"{path}.straddling", len(seen.straddling), 1, why)
    for begin, end in seen.straddling:
        if not seen.late_ns <= begin < window_ns < end:
            why = "it does not lie across the window's end"
            yield Difference(f"{path}.straddling", [begin, end], None, why)
    known = seen.inside + len(seen.straddling)
    # Where no call lies across the end, the last one ended on it or began after it.
    beyond = 0 if seen.straddling or seen.calls != known + 1 else 1
    if seen.calls != known + beyond or not seen.calls:
        yield Difference(f"{path}.calls", seen.calls, known, "inside the window and across its end")
    first = seen.straddling[0][0] if seen.straddling and not seen.inside else seen.late_ns
    if seen.late_ns != first:
        yield Difference(f"{path}.late_ns", seen.late_ns, first, "the first call's begin")
    room = (seen.straddling[0][0] if seen.straddling else window_ns) - seen.late_ns
    if seen.inside > max(room, 0):
        why = "more calls than nanoseconds"
        yield Difference(f"{path}.inside", seen.inside, max(room, 0), why)


def _fits(path: str, attempt: BoxAttempt, seen: BoxWindow) -> Iterator[Difference]:
    spent = seen.load_ns + seen.warmup_ns + attempt.window_ns
    if spent > attempt.wall_ns:
        why = "loading, warming up and the window last longer than the attempt"
        yield Difference(f"{path}.window.load_ns", spent, attempt.wall_ns, why)


def _check(path: str, seen: BoxWindow, inputs: int) -> Iterator[Difference]:
    """Check that the call whose outputs were compared is the window's last one."""
    check = seen.check
    if check.iteration != seen.calls - 1:
        yield Difference(f"{path}.iteration", check.iteration, seen.calls - 1, "the last call")
    sample = check.iteration % inputs if inputs else None
    if check.sample != sample:
        yield Difference(f"{path}.sample", check.sample, sample, "calls take the inputs in turn")
    if (check.snr_db is None) != (check.why is not None):
        yield Difference(f"{path}.why", check.why, None, "what is not known, alone, has a reason")


def _turns(payload: Payload, manifest: Manifest, policy: Policy) -> Iterator[Difference]:
    """Replay the stage: each attempt must have been wanted when it was made."""
    quick = payload.plan.quick
    cards = {
        c.role: c
        for c in role_cards(
            payload.engines, payload.processors, payload.plan.box, payload.entries, manifest
        )
    }
    for i, role in enumerate(payload.box.roles if payload.box else []):
        before: list[BoxAttempt] = []
        for j, attempt in enumerate(role.attempts):
            own = cards.get(role.role)
            if own is None or not wants_attempt(own, before, policy, quick=quick):
                why = "no attempt was wanted any more"
                yield Difference(f"box.roles[{i}].attempts[{j}]", attempt.n, None, why)
                break
            before.append(judged(attempt, manifest, policy))
