"""The database's schema, step by step. ``versions`` holds a module for each; Alembic runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from npumark.errors import SetupError

_FOLDER: Final = Path(__file__).parent


def upgrade(connection: Connection) -> None:
    """Bring the schema up to date within the connection's transaction.

    Raises SetupError where a newer npumark made it.
    """
    present = revision(connection)
    known = {step.revision for step in _script().walk_revisions()}
    if present is not None and present not in known:
        raise SetupError(
            f"the database was made by a newer npumark (its schema is {present}, and this one "
            f"knows {newest()})",
            "Upgrade npumark on this server, or restore the backup made before the upgrade.",
        )
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def revision(connection: Connection) -> str | None:
    """Return the name of the schema that the database has; null before the first."""
    return MigrationContext.configure(connection).get_current_revision()


def newest() -> str | None:
    """Return the name of the schema that this npumark works with."""
    return _script().get_current_head()


def _script() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
