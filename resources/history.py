"""Where Dagster keeps the history of runs: SQLite in its home, or PostgreSQL where `$AGML_POSTGRES_URL` names one.

`dagster.yaml` names the class. The password stays in the environment: Dagster hands its configuration on to its
workers as an argument, which everybody on the machine can read.
"""

import os
from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.base_storage import DagsterStorage
from dagster._serdes import ConfigurableClassData

from agml_assets.errors import UserError

VARIABLE = "AGML_POSTGRES_URL"
_CONNECT_TIMEOUT_S = "10"


class BenchmarkInstance(dg.DagsterInstance):
    """Dagster's own instance, whose default storage follows the environment."""

    @classmethod
    def config_schema(cls) -> dict[str, Any]:
        """Return the keys that `dagster.yaml` may have beside Dagster's: none."""
        return {}

    @staticmethod
    def config_defaults(base_dir: str) -> Mapping[str, ConfigurableClassData | None]:
        """Return what Dagster uses where `dagster.yaml` says nothing."""
        defaults = InstanceRef.config_defaults(base_dir)
        if not os.environ.get(VARIABLE):
            return defaults
        return {**defaults, "storage": ConfigurableClassData(__name__, "PostgresHistory", "{}\n")}


class PostgresHistory(DagsterStorage):
    """Opens the storage of `dagster-postgres` at `$AGML_POSTGRES_URL`."""

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        """Return the keys of its configuration: none."""
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, _config: Mapping[str, Any]) -> Any:
        """Connect, and create the tables where there are none.

        Raises:
            UserError: The variable holds no such URL, a package is missing, or the server refuses or is not there.
        """
        try:
            import sqlalchemy
            from dagster_postgres import DagsterPostgresStorage
            from dagster_postgres.utils import DagsterPostgresException
        except ImportError as error:
            raise UserError(
                f"${VARIABLE} is set, but a package is missing: {error}. Install it with "
                "pip install 'agml-assets[postgres]', or unset the variable to keep the history in SQLite."
            ) from None
        url = _url(os.environ.get(VARIABLE, ""))
        try:
            return DagsterPostgresStorage(url.render_as_string(hide_password=False), inst_data=inst_data)
        except (DagsterPostgresException, sqlalchemy.exc.SQLAlchemyError) as error:
            cause = getattr(error.__cause__, "orig", None) or error
            raise UserError(
                f"${VARIABLE} names {url}, which cannot be used: {str(cause).strip()}\nCheck that the server runs "
                "there, that the database exists, and user and password."
            ) from None


def _url(text: str) -> Any:
    """Return the URL with the driver that dagster-postgres comes with, and an end to waiting for an answer."""
    import sqlalchemy

    try:
        url = sqlalchemy.make_url(text)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        url = None
    if url is None or url.drivername.partition("+")[0] not in ("postgres", "postgresql"):
        raise UserError(f"${VARIABLE} must be a URL such as postgresql://user:password@host/database.")
    timeout = {"connect_timeout": _CONNECT_TIMEOUT_S, **url.query}
    return url.set(drivername="postgresql+psycopg2", query=timeout)
