"""What of a record may be published: all but the engines whose results stay on this computer."""

from __future__ import annotations

from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.model import Payload
from npumark.score.derive import RunFacts, derive
from npumark.score.recompute import facts_of


def publishable(payload: Payload, manifest: Manifest, policy: Policy) -> Payload:
    """Return ``payload`` without its local-only engines, every figure derived anew.

    Their entries and attempts go with them, and the harness's overhead where it was measured on
    one. Score, completeness, comparability, box total and warnings are those of a run that never
    had them; the result recomputes like any record. A payload without such engines comes back as
    it is. Pure; ``manifest`` and ``policy`` are those of the run.
    """
    kept = [e for e in payload.engines if not e.local_only]
    if len(kept) == len(payload.engines):
        return payload
    names = {e.id for e in kept}
    whole = facts_of(payload, manifest)
    facts = RunFacts(
        plan=tuple(p for p in whole.plan if p.engine in names),
        attempts={key: ran for key, ran in whole.attempts.items() if key[0] in names},
        engines=kept,
        processors=whole.processors,
        options=whole.options,
        suite=whole.suite,
        environment=whole.environment,
        resumed=whole.resumed,
        prepared=[made for made in payload.prepared if made.engine in names],
        box_attempts=whole.box_attempts,
    )
    harness = payload.harness
    if harness.get("engine") is not None and harness["engine"] not in names:
        harness = {"overhead_ns": None, "why": "measured on an engine that is not published"}
    fields = derive(facts, manifest, policy).fields()
    went = dict(fields["where_time_went_ns"])
    if facts.prepared:
        went["compile"] = sum(made.wall_ns for made in facts.prepared)
    return payload.model_copy(
        update={
            **fields,
            "where_time_went_ns": went,
            "harness": harness,
            "prepared": list(facts.prepared),
        }
    )
