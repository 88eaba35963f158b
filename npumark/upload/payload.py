"""What is uploaded of a run: a payload of its own, derived from the local record.

It lacks the engines whose results stay on this computer (``score.publish``), the words of the
command line, the workers' logs, and every fact of the machine that is not on the lists of
``record.published``; its reasons hold no paths. Everything that follows from what is left is
derived anew, so that it recomputes like any record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from npumark.errors import IntegrityError, UsageError
from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.model import Payload
from npumark.record.published import DETAILS, FACTS, MACHINE
from npumark.score.derive import derive
from npumark.score.formula import is_known_formula
from npumark.score.publish import publishable
from npumark.score.recompute import facts_of, recompute
from npumark.upload.texts import public_texts

UNPUBLISHED: Final = "it is not published"


def upload_payload(
    payload: Payload,
    manifest: Manifest,
    policy: Policy,
    known: Sequence[tuple[str, str]] = (),
) -> Payload:
    """Return what is uploaded of a run. Pure; ``manifest`` and ``policy`` are those of the run,
    ``known`` as in ``texts.public_text``.

    Raises UsageError, saying why, where nothing of the run can be uploaded, and IntegrityError
    where its figures do not follow from its attempts.
    """
    _check_basis(payload, manifest, policy)
    published = publishable(payload, manifest, policy)
    _check_worth(payload, published)
    document = _stripped(public_texts(published.model_dump(by_alias=True), known))
    stripped = Payload.model_validate(document)
    # Some reasons are quoted further up; those of the attempts were just rewritten.
    fields = derive(facts_of(stripped, manifest), manifest, policy).fields()
    fields["where_time_went_ns"] = stripped.where_time_went_ns
    upload = stripped.model_copy(update=fields)
    if found := recompute(upload, manifest, policy):
        raise IntegrityError(
            f"run {payload.run_id} does not recompute: {found[0]}",
            f"`npumark verify {payload.run_id}` names each difference.",
        )
    return upload


def _check_basis(payload: Payload, manifest: Manifest, policy: Policy) -> None:
    if payload.suite.manifest_sha256 != manifest.sha256:
        raise UsageError(
            f"run {payload.run_id} used another pack than this npumark's, and a server takes "
            "only the pinned one",
            "Measure again without --manifest, or submit with the npumark that measured it.",
        )
    if not payload.suite.verified:
        raise UsageError(
            f"run {payload.run_id} read a pack that was not the pinned one: "
            f"{payload.suite.why_not or 'it was not verified'}",
            "`npumark pack verify` says what is wrong with it; measure again afterwards.",
        )
    for what, same in (
        ("measured by the rules", payload.policy_sha256 == policy.sha256),
        ("computed with the arithmetic", is_known_formula(payload.formula_sha256)),
    ):
        if not same:
            raise UsageError(
                f"run {payload.run_id} was {what} of another npumark",
                "Submit it with the npumark that measured it, or measure again.",
            )


def _check_worth(payload: Payload, published: Payload) -> None:
    """Raise UsageError where there is nothing in a run that a server could show."""
    run = payload.run_id
    if not published.engines and payload.engines:
        raise UsageError(
            f"run {run} holds only results that may not be published",
            "`npumark engines` says which engines stay on this computer.",
        )
    for kind, all_are in (
        ("virtual", all(e.virtual for e in published.engines)),
        ("emulated", all(e.emulated for e in published.engines)),
    ):
        if published.engines and all_are:
            raise UsageError(
                f"run {run} measured {kind} engines only, which says nothing of a device",
                "`npumark run` measures what is really there.",
            )
    if not published.complete:
        raise UsageError(
            f"run {run} is not complete, and only complete runs are submitted",
            f"`npumark run --resume {run}` completes it.",
        )
    totals = [role.tops for role in published.box.roles] if published.box else []
    if published.score is None and not any(total is not None for total in totals):
        raise UsageError(
            f"run {run} has no score to submit: {published.score_why or published.box_why}",
            f"`npumark report {run}` shows what there is.",
        )


def _stripped(document: dict[str, Any]) -> dict[str, Any]:
    """Return a payload's document without what need not leave the computer."""
    plan, environment = document["plan"], document["environment"]
    engines = document["engines"]
    named = {
        "engines": _named([e[k] for e in engines for k in ("id", "runtime")]),
        "workloads": _named(e["workload"] for e in document["entries"]),
        "variants": _named(
            e[k] for e in document["entries"] for k in ("variant", "graph_variant", "format")
        ),
    }
    return {
        **document,
        "plan": {
            **plan,
            "argv": [],
            **{name: _words(plan[name], known) for name, known in named.items()},
        },
        "machine": _machine(document["machine"]),
        "environment": {**environment, "facts": _only(environment["facts"], FACTS)},
        "processors": [
            {**p, "details": _only(p["details"], DETAILS)} for p in document["processors"]
        ],
        "entries": [
            {**entry, "attempts": [{**a, "log_tail": None} for a in entry["attempts"]]}
            for entry in document["entries"]
        ],
        "box": _box(document["box"]),
    }


def _machine(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the public facts; of the others, that they are not published."""
    why = told.get("why") or {}
    return (
        {
            **{name: value if name in MACHINE else None for name, value in told.items()},
            "why": {
                name: why.get(name, UNPUBLISHED) if name in MACHINE else UNPUBLISHED
                for name in told
                if name != "why" and (name not in MACHINE or name in why)
            },
        }
        if told
        else {}
    )


def _box(box: dict[str, Any] | None) -> dict[str, Any] | None:
    if box is None:
        return None
    roles = [
        {
            **role,
            "attempts": [
                {**a, "cards": [{**card, "log_tail": None} for card in a["cards"]]}
                for a in role["attempts"]
            ],
        }
        for role in box["roles"]
    ]
    return {**box, "roles": roles}


def _only(facts: Mapping[str, Any], public: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name in public}


def _named(words: Iterable[str | None]) -> Callable[[str], bool]:
    """Return what tells whether a word names one of ``words``, or the start of one."""
    known = {word.lower() for word in words if word}
    return lambda word: any(name.startswith(word.lower()) for name in known)


def _words(words: Sequence[str] | None, known: Callable[[str], bool]) -> list[str] | None:
    """Return the words of a selection that name something in the record: a user may have typed
    anything. Null stays null; a selection stays one, however few of its words are left."""
    return None if words is None else [word for word in words if word and known(word)]
