"""The database: one set of tables for SQLite and PostgreSQL (SQLAlchemy Core).

``results`` has a row for each accepted record, ``bodies`` its exact bytes, ``figures`` a row for
each number format of each engine, which is what the board reads by ``facets``. The log is in
``log_head``, ``log_leaves`` and ``log_tiles``. Instants are UTC seconds since 1970.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

machines = Table(
    "machines",
    metadata,
    # sha256 of the machine id that envelopes state, which itself is kept nowhere.
    Column("machine", String(64), primary_key=True),
    Column("first_seen", BigInteger, nullable=False),
    Column("banned_at", BigInteger),
    Column("banned_why", Text),
)

keys = Table(
    "keys",
    metadata,
    Column("key_id", String(32), primary_key=True),
    Column("public_key", String(64), nullable=False),
    Column("machine", ForeignKey("machines.machine"), nullable=False, index=True),
    Column("registered_at", BigInteger, nullable=False),
    Column("replaced_at", BigInteger),
    Column("banned_at", BigInteger),
    Column("banned_why", Text),
)

processors = Table(
    "processors",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("slug", String(120), nullable=False, unique=True),
    Column("name", String(200), nullable=False),
    # Lower case, for the search.
    Column("folded", String(200), nullable=False, index=True),
    Column("role", String(8), nullable=False),
    Column("runs", Integer, nullable=False, default=0),
    Index("uq_processors_role_name", "role", "name", unique=True),
)

results = Table(
    "results",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("leaf_index", BigInteger, nullable=False, unique=True),
    Column("run_id", String(128), nullable=False, unique=True),
    Column("payload_sha256", String(64), nullable=False, unique=True),
    Column("record_sha256", String(64), nullable=False),
    Column("key_id", ForeignKey("keys.key_id"), nullable=False, index=True),
    Column("machine", String(64), nullable=False, index=True),
    Column("received_at", BigInteger, nullable=False, index=True),
    Column("trust", String(12), nullable=False),
    Column("attestation", String(12), nullable=False),
    # Of the record, for lists and the result page's head; everything else is read from the body.
    Column("created", String(40), nullable=False),
    Column("score_version", String(12), nullable=False),
    Column("suite", String(60), nullable=False),
    Column("edition", String(20), nullable=False),
    Column("tool_version", String(40), nullable=False),
    Column("os", String(12), nullable=False),
    Column("tops", Float),
    Column("label", Text),
    Column("quick", Boolean, nullable=False),
    Column("comparable", Boolean, nullable=False),
    Column("unstable", Boolean, nullable=False),
    # Why it is not ranked, as codes; an empty list where it is.
    Column("ranked", Boolean, nullable=False),
    Column("not_ranked_because", JSON, nullable=False),
    # The verdict of the last recomputation, and the digest of the rules that it was made by.
    Column("rules_sha256", String(64), nullable=False, index=True),
    Column("verified_at", BigInteger, nullable=False),
    Column("faults", JSON, nullable=False),
    Column("receipt", LargeBinary, nullable=False),
    Column("withdrawn_at", BigInteger),
    Column("hidden_at", BigInteger),
    Column("hidden_why", Text),
)

bodies = Table(
    "bodies",
    metadata,
    Column("result_id", ForeignKey("results.id"), primary_key=True),
    # zlib of the record's canonical bytes, signatures included.
    Column("record", LargeBinary, nullable=False),
)

facets = Table(
    "facets",
    metadata,
    # One for each combination of what the board filters by, so that a filter is a set of facets
    # and each facet's figures lie in order in an index. Some hundreds of rows.
    Column("id", Integer, primary_key=True),
    Column("score_version", String(12), nullable=False),
    Column("suite", String(60), nullable=False),
    Column("edition", String(20), nullable=False),
    Column("os", String(12), nullable=False),
    Column("role", String(8), nullable=False),
    Column("runtime", String(60), nullable=False),
    Column("format", String(12), nullable=False),
    # What the figure stands for: 3 the whole run, 2 its role too (the best of that role), 1 its
    # engine only, 0 no more than its format on that engine.
    Column("level", Integer, nullable=False),
    Column("ranked", Boolean, nullable=False),
    # How many figures are in it now.
    Column("figures", BigInteger, nullable=False),
    Index(
        "uq_facets",
        *("score_version", "suite", "edition", "os", "role", "runtime", "format", "level"),
        "ranked",
        unique=True,
    ),
)

figures = Table(
    "figures",
    metadata,
    # Of shown results only: a withdrawn or hidden one has none. Written by ``facets``.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("result_id", ForeignKey("results.id"), nullable=False, index=True),
    Column("facet_id", ForeignKey("facets.id"), nullable=False),
    Column("processor_id", ForeignKey("processors.id"), nullable=False),
    Column("engine", String(60), nullable=False),
    Column("label", String(120), nullable=False),
    Column("workload", String(60), nullable=False),
    Column("tops", Float, nullable=False),
    Column("unstable", Boolean, nullable=False),
    # Of the engine: only on its best row, and only where complete and stable.
    Column("delivered", Float),
    Column("received_at", BigInteger, nullable=False),
)

# A facet's figures in each order of the board; and the same within a processor, for the search.
# All are read from either end: SQLite and PostgreSQL walk an index both ways.
_DELIVERED = figures.c.delivered.is_not(None)
for _lead in ((figures.c.facet_id,), (figures.c.processor_id, figures.c.facet_id)):
    _of = "_".join(column.name.removesuffix("_id") for column in _lead)
    Index(f"ix_figures_{_of}_tops", *_lead, figures.c.tops, figures.c.id)
    Index(f"ix_figures_{_of}_newest", *_lead, figures.c.received_at, figures.c.id)
    Index(
        f"ix_figures_{_of}_delivered",
        *(*_lead, figures.c.delivered, figures.c.id),
        sqlite_where=_DELIVERED,
        postgresql_where=_DELIVERED,
    )
# A processor's newest, of any facet: what its page is made of.
Index(
    "ix_figures_processor_newest",
    figures.c.processor_id,
    figures.c.received_at,
    figures.c.facet_id,
)

log_head = Table(
    "log_head",
    metadata,
    Column("id", Integer, primary_key=True),  # one row, 1; locked while a leaf is added
    Column("size", BigInteger, nullable=False),
    # The roots of the full subtrees that make up the tree, largest first, 32 bytes each.
    Column("frontier", LargeBinary, nullable=False),
    Column("checkpoint", Text, nullable=False),  # a signed note
)

log_leaves = Table(
    "log_leaves",
    metadata,
    Column("index", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary(32), nullable=False),
    Column("entry", LargeBinary, nullable=False),
)

log_tiles = Table(
    "log_tiles",
    metadata,
    # Full tiles above level 0 are made of these: the root of each full tile one level below.
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("index", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary(32), nullable=False),
)

cosignatures = Table(
    "cosignatures",
    metadata,
    Column("size", BigInteger, primary_key=True, autoincrement=False),
    Column("witness", String(200), primary_key=True),
    Column("line", Text, nullable=False),
    Column("received_at", BigInteger, nullable=False),
)
