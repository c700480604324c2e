"""What decides a score, part by part, so that a change can be named"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("problem_parts", sa.JSON(), nullable=True))
