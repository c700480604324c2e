"""Islands, evaluators' metrics, retries, and ids that don't depend on the order of arrival"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("committed", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("run", sa.Column("legacy_prompts", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("prompt", sa.Column("island", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("prompt", sa.Column("retries", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("completion", sa.Column("edits", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute("alter table completion add column retry_of integer references completion (id)")
    op.add_column("program", sa.Column("metrics", sa.JSON(), nullable=True))
    op.add_column("program", sa.Column("artifacts", sa.JSON(), nullable=True))
    op.drop_index("ix_program_fingerprint", "program")
    op.create_index("ix_program_fingerprint", "program", ["fingerprint", "id"])
    op.execute(
        "update run set legacy_prompts = coalesce((select max(id) from prompt), 0), committed = coalesce("
        "(select min(id) - 1 from prompt where completions > "
        "(select count(*) from completion where completion.prompt_id = prompt.id)), (select max(id) from prompt), 0)"
    )
