"""The first schema.

Written out rather than taken from ``tables``, which goes on: a migration stays what it was.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_DELIVERED = sa.text("delivered IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "cosignatures",
        sa.Column("size", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("witness", sa.String(length=200), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("size", "witness", name=op.f("pk_cosignatures")),
    )
    op.create_table(
        "facets",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("score_version", sa.String(length=12), nullable=False),
        sa.Column("suite", sa.String(length=60), nullable=False),
        sa.Column("edition", sa.String(length=20), nullable=False),
        sa.Column("os", sa.String(length=12), nullable=False),
        sa.Column("role", sa.String(length=8), nullable=False),
        sa.Column("runtime", sa.String(length=60), nullable=False),
        sa.Column("format", sa.String(length=12), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("ranked", sa.Boolean(), nullable=False),
        sa.Column("figures", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_facets")),
    )
    op.create_index(
        "uq_facets",
        "facets",
        ["score_version", "suite", "edition", "os", "role", "runtime", "format", "level", "ranked"],
        unique=True,
    )
    op.create_table(
        "log_head",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("frontier", sa.LargeBinary(), nullable=False),
        sa.Column("checkpoint", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log_head")),
    )
    op.create_table(
        "log_leaves",
        sa.Column("index", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("entry", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("index", name=op.f("pk_log_leaves")),
    )
    op.create_table(
        "log_tiles",
        sa.Column("level", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("index", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("hash", sa.LargeBinary(length=32), nullable=False),
        sa.PrimaryKeyConstraint("level", "index", name=op.f("pk_log_tiles")),
    )
    op.create_table(
        "machines",
        sa.Column("machine", sa.String(length=64), nullable=False),
        sa.Column("first_seen", sa.BigInteger(), nullable=False),
        sa.Column("banned_at", sa.BigInteger()),
        sa.Column("banned_why", sa.Text()),
        sa.PrimaryKeyConstraint("machine", name=op.f("pk_machines")),
    )
    op.create_table(
        "processors",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("slug", sa.String(length=120), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("folded", sa.String(length=200), nullable=False),
        sa.Column("role", sa.String(length=8), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_processors")),
        sa.UniqueConstraint("slug", name=op.f("uq_processors_slug")),
    )
    op.create_index(op.f("ix_processors_folded"), "processors", ["folded"])
    op.create_index("uq_processors_role_name", "processors", ["role", "name"], unique=True)
    op.create_table(
        "keys",
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("public_key", sa.String(length=64), nullable=False),
        sa.Column("machine", sa.String(length=64), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.Column("replaced_at", sa.BigInteger()),
        sa.Column("banned_at", sa.BigInteger()),
        sa.Column("banned_why", sa.Text()),
        sa.ForeignKeyConstraint(["machine"], ["machines.machine"], name=op.f("fk_keys_machine")),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_keys")),
    )
    op.create_index(op.f("ix_keys_machine"), "keys", ["machine"])
    op.create_table(
        "results",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("leaf_index", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.String(length=128), nullable=False),
        sa.Column("payload_sha256", sa.String(length=64), nullable=False),
        sa.Column("record_sha256", sa.String(length=64), nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("machine", sa.String(length=64), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("trust", sa.String(length=12), nullable=False),
        sa.Column("attestation", sa.String(length=12), nullable=False),
        sa.Column("created", sa.String(length=40), nullable=False),
        sa.Column("score_version", sa.String(length=12), nullable=False),
        sa.Column("suite", sa.String(length=60), nullable=False),
        sa.Column("edition", sa.String(length=20), nullable=False),
        sa.Column("tool_version", sa.String(length=40), nullable=False),
        sa.Column("os", sa.String(length=12), nullable=False),
        sa.Column("tops", sa.Float()),
        sa.Column("label", sa.Text()),
        sa.Column("quick", sa.Boolean(), nullable=False),
        sa.Column("comparable", sa.Boolean(), nullable=False),
        sa.Column("unstable", sa.Boolean(), nullable=False),
        sa.Column("ranked", sa.Boolean(), nullable=False),
        sa.Column("not_ranked_because", sa.JSON(), nullable=False),
        sa.Column("rules_sha256", sa.String(length=64), nullable=False),
        sa.Column("verified_at", sa.BigInteger(), nullable=False),
        sa.Column("faults", sa.JSON(), nullable=False),
        sa.Column("receipt", sa.LargeBinary(), nullable=False),
        sa.Column("withdrawn_at", sa.BigInteger()),
        sa.Column("hidden_at", sa.BigInteger()),
        sa.Column("hidden_why", sa.Text()),
        sa.ForeignKeyConstraint(["key_id"], ["keys.key_id"], name=op.f("fk_results_key_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_results")),
        sa.UniqueConstraint("leaf_index", name=op.f("uq_results_leaf_index")),
        sa.UniqueConstraint("payload_sha256", name=op.f("uq_results_payload_sha256")),
        sa.UniqueConstraint("run_id", name=op.f("uq_results_run_id")),
    )
    op.create_index(op.f("ix_results_key_id"), "results", ["key_id"])
    op.create_index(op.f("ix_results_machine"), "results", ["machine"])
    op.create_index(op.f("ix_results_received_at"), "results", ["received_at"])
    op.create_index(op.f("ix_results_rules_sha256"), "results", ["rules_sha256"])
    op.create_table(
        "bodies",
        sa.Column("result_id", sa.String(length=16), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["result_id"], ["results.id"], name=op.f("fk_bodies_result_id")),
        sa.PrimaryKeyConstraint("result_id", name=op.f("pk_bodies")),
    )
    op.create_table(
        "figures",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("result_id", sa.String(length=16), nullable=False),
        sa.Column("facet_id", sa.Integer(), nullable=False),
        sa.Column("processor_id", sa.Integer(), nullable=False),
        sa.Column("engine", sa.String(length=60), nullable=False),
        sa.Column("label", sa.String(length=120), nullable=False),
        sa.Column("workload", sa.String(length=60), nullable=False),
        sa.Column("tops", sa.Float(), nullable=False),
        sa.Column("unstable", sa.Boolean(), nullable=False),
        sa.Column("delivered", sa.Float()),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["facet_id"], ["facets.id"], name=op.f("fk_figures_facet_id")),
        sa.ForeignKeyConstraint(
            ["processor_id"], ["processors.id"], name=op.f("fk_figures_processor_id")
        ),
        sa.ForeignKeyConstraint(["result_id"], ["results.id"], name=op.f("fk_figures_result_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_figures")),
    )
    op.create_index(
        "ix_figures_facet_delivered",
        "figures",
        ["facet_id", "delivered", "id"],
        sqlite_where=_DELIVERED,
        postgresql_where=_DELIVERED,
    )
    op.create_index("ix_figures_facet_newest", "figures", ["facet_id", "received_at", "id"])
    op.create_index("ix_figures_facet_tops", "figures", ["facet_id", "tops", "id"])
    op.create_index(
        "ix_figures_processor_facet_delivered",
        "figures",
        ["processor_id", "facet_id", "delivered", "id"],
        sqlite_where=_DELIVERED,
        postgresql_where=_DELIVERED,
    )
    op.create_index(
        "ix_figures_processor_facet_newest",
        "figures",
        ["processor_id", "facet_id", "received_at", "id"],
    )
    op.create_index(
        "ix_figures_processor_newest", "figures", ["processor_id", "received_at", "facet_id"]
    )
    op.create_index(
        "ix_figures_processor_facet_tops", "figures", ["processor_id", "facet_id", "tops", "id"]
    )
    op.create_index(op.f("ix_figures_result_id"), "figures", ["result_id"])
