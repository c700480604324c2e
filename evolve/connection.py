"""Open `run.sqlite`: pragmas, migrations, and messages for what SQLite complains about.

SQLite in WAL mode, so that readers (`evolve show`) never wait for the writer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError as SqlError

from evolve.errors import BadInput, DatabaseError

FILE = "run.sqlite"


def connect(path: Path, read_only: bool = False) -> Store:
    """Open a run's database.

    Raises:
        BadInput: there is no run at this place.
        DatabaseError: the file belongs to a newer version of this software, or is not a database.
    """
    if not path.is_file():
        raise BadInput(f"{path.parent} is not a run: it holds no {FILE}. Runs are made by `evolve run PROBLEM`.")
    engine = new_engine(path)
    store = Store(engine, path)
    with store.read() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    known = {revision.revision for revision in ScriptDirectory.from_config(alembic_config()).walk_revisions()}
    if found not in known:
        raise DatabaseError(
            f"{path} has the schema {found!r}, which this version ({version('vector-evolve')}) doesn't know. It was "
            "written by a newer one; use that."
        )
    if found != head:
        if read_only:
            raise DatabaseError(f"{path} has an older schema; `evolve resume {path.parent}` brings it up to date.")
        migrate(engine)
    return store


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[Connection]:
    """Read a run's database once; the run may be going on.

    Raises:
        BadInput: there is no run.
        DatabaseError: it can't be read.
    """
    store = connect(folder / FILE, read_only=True)
    try:
        with store.read() as connection:
            yield connection
    finally:
        store.close()


@contextlib.contextmanager
def errors(path: Path) -> Iterator[None]:
    """Turn SQLite's complaints about the file or the disk into a `DatabaseError` that says what to do."""
    try:
        yield
    except SqlError as error:
        raise DatabaseError(
            f"{path}: {error.orig or error}. What was recorded before is kept. Check the disk space and whether another "
            f"program uses the file, then `evolve resume {path.parent}`."
        ) from error


class Store:
    """A run's database: transactions whose errors say what to do.

    Args:
        engine: for the file.
        path: the file, for messages.
    """

    def __init__(self, engine: Engine, path: Path):
        self._engine = engine
        self._path = path

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Read, without waiting for anybody."""
        with errors(self._path), self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """Write in one transaction, which an error undoes."""
        with errors(self._path), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def outside_transactions(self) -> Iterator[Connection]:
        """Do what SQLite allows only outside of a transaction."""
        with errors(self._path), self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def new_engine(path: Path) -> Engine:
    """Return an engine for the file, made at the first connection."""
    engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": 10})

    @event.listens_for(engine, "connect")
    def _pragmas(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "foreign_keys=ON", "synchronous=NORMAL"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    return engine


def alembic_config() -> Config:
    """Return Alembic's configuration: where the migrations are."""
    config = Config()
    config.set_main_option("script_location", str(files("evolve").joinpath("migrations")))
    return config


def migrate(engine: Engine) -> None:
    """Bring a database, new ones included, to this version's schema."""
    config = alembic_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
