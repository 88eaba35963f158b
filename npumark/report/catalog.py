"""What a report says of workloads that a record names only by id."""

from __future__ import annotations

from dataclasses import dataclass, field

from npumark.pack.manifest import Kind, Manifest, Tier


@dataclass(frozen=True, slots=True)
class Catalog:
    """Titles, tiers and kinds by workload id. A record of another pack may name workloads that
    it lacks: their ids stand for the titles, and the ids of peak chains begin so."""

    titles: dict[str, str] = field(default_factory=dict)
    tiers: dict[str, Tier] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)

    def title(self, workload: str) -> str:
        return self.titles.get(workload, workload)

    def tier(self, workload: str) -> Tier:
        return self.tiers.get(workload, "peak" if workload.startswith("peak-") else "scored")

    def kind(self, workload: str) -> Kind:
        return self.kinds.get(workload, "peak" if workload.startswith("peak-") else "network")


def catalog_of(manifest: Manifest) -> Catalog:
    """Return what ``manifest`` says of its workloads."""
    every = manifest.workloads.values()
    return Catalog(
        {w.id: w.title for w in every}, {w.id: w.tier for w in every}, {w.id: w.kind for w in every}
    )
