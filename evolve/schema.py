"""The tables of `run.sqlite`. A change here comes with a migration in `evolve/migrations/versions`."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

run = Table(
    "run",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("problem", Text, nullable=False, doc="path of the problem folder"),
    Column("problem_name", Text, nullable=False),
    Column("problem_digest", String(64), nullable=False, doc="hash of all that decides a score"),
    Column(
        "problem_parts", JSON(none_as_null=True), doc="hash of each of them by name; null in runs of versions before 0003"
    ),
    Column("options", JSON, nullable=False, doc="options of the search"),
    Column("seed", Integer, nullable=False),
    Column(
        "rng_state",
        JSON,
        nullable=False,
        doc="of the run's one generator, after the last generation's prompts",
    ),
    Column("status", String(20), nullable=False, doc="running, finished or stopped"),
    Column("reason", Text, nullable=False, default=""),
    Column("elapsed", Float, nullable=False, default=0.0, doc="seconds that the search ran, over all resumes"),
    Column("created", Float, nullable=False, doc="seconds since 1970"),
    Column("version", Text, nullable=False, doc="of the software"),
    Column(
        "committed", Integer, nullable=False, default=0, doc="id of the last prompt whose programs joined the population"
    ),
    Column("legacy_prompts", Integer, nullable=False, default=0, doc="prompts whose rows have ids in order of arrival"),
)

objective = Table(
    "objective",
    metadata,
    Column("id", Integer, primary_key=True, doc="position in score vectors, from 0"),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", String(10), nullable=False, doc="test, extra or metric"),
)

mutator = Table(
    "mutator",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True, doc="served name"),
    Column("model", Text, nullable=False, doc="base model"),
    Column("adapter", Text, doc="folder of the adapter, or null for the base model"),
    Column("state", String(10), nullable=False, doc="serving, candidate, rejected or retired"),
    Column("created", Float, nullable=False),
)

prompt = Table(
    "prompt",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("generation", Integer, nullable=False, index=True),
    Column("position", Integer, nullable=False, doc="within the generation, from 0"),
    Column("parent_id", ForeignKey("program.id", use_alter=True, name="fk_prompt_parent"), nullable=False),
    Column("inspirations", JSON, nullable=False, doc="program ids"),
    Column("messages", JSON, nullable=False),
    Column("completions", Integer, nullable=False, doc="how many are wanted (G)"),
    Column("answers", Integer, nullable=False, doc="how many each should hold (m)"),
    Column("seed", Integer, nullable=False),
    Column("island", Integer, nullable=False, default=0),
    Column("retries", Boolean, nullable=False, default=False, doc="a reply without a program is asked for once more"),
    UniqueConstraint("generation", "position"),
)

completion = Table(
    "completion",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("prompt_id", ForeignKey("prompt.id"), nullable=False),
    Column("position", Integer, nullable=False, doc="within the prompt's group, from 0; retries after them"),
    Column("mutator_id", ForeignKey("mutator.id"), nullable=False),
    Column("text", Text, nullable=False),
    Column("format", String(10), nullable=False, doc="plain or scaffold"),
    Column("wanted", Integer, nullable=False, doc="answers asked for (m)"),
    Column("finish_reason", String(20), nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False, doc="tokens that the model sampled"),
    Column("seconds", Float, nullable=False),
    Column("temperature", Float, nullable=False),
    Column("seed", Integer),
    Column("prompt_token_ids", JSON(none_as_null=True)),
    Column("token_ids", JSON(none_as_null=True)),
    Column("logprobs", JSON(none_as_null=True), doc="null at tokens that the client wrote"),
    Column(
        "sampled",
        JSON(none_as_null=True),
        doc="false at tokens that the client wrote; null when all were sampled",
    ),
    Column("created", Float, nullable=False),
    Column("edits", Boolean, nullable=False, default=False, doc="the reply holds SEARCH/REPLACE edits"),
    Column(
        "retry_of",
        ForeignKey("completion.id", name="fk_completion_retry"),
        doc="the completion without a program whose error this answers",
    ),
    UniqueConstraint("prompt_id", "position"),
)

source = Table(
    "source",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("text", Text, nullable=False),
)

program = Table(
    "program",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("completion_id", ForeignKey("completion.id"), index=True, doc="null for the initial program"),
    Column("position", Integer, nullable=False, doc="answer within the completion, from 0"),
    Column("generation", Integer, nullable=False),
    Column("parent_id", ForeignKey("program.id")),
    Column("source_hash", ForeignKey("source.hash"), doc="null when the answer is unusable"),
    Column("fingerprint", String(64), doc="equal for twins"),
    Column(
        "status",
        String(10),
        nullable=False,
        doc="scored, failed (could not run), unusable (no program) or outdated (the problem has changed since)",
    ),
    Column("reason", Text, nullable=False, default="", doc="why unusable"),
    Column("duplicate_of", ForeignKey("program.id"), doc="the oldest twin; known when the prompt is committed"),
    Column("fitness", Float, doc="mean of the scores or an evaluator's; null unless scored"),
    Column("solved", Boolean, nullable=False, default=False, doc="every visible test passes"),
    Column("scores", JSON(none_as_null=True), doc="one number per objective, null where it has none"),
    Column("verdicts", JSON(none_as_null=True), doc="one per visible test, or one of an evaluation"),
    Column("results", JSON(none_as_null=True), doc="per verdict: got, detail, stderr, cpu_seconds, loaded"),
    Column("metrics", JSON(none_as_null=True), doc="what an evaluator returned; null with tests"),
    Column("artifacts", JSON(none_as_null=True), doc="texts of an evaluator; null with tests"),
    Column("level", String(30), doc="isolation of the sandbox"),
    Column("hidden_verdicts", JSON(none_as_null=True), doc="null until the hidden tests were run"),
    Column("hidden_scores", JSON(none_as_null=True)),
    Column("created", Float, nullable=False),
    Index("ix_program_fitness", "fitness"),
    Index("ix_program_fingerprint", "fingerprint", "id"),
)

event = Table(
    "event",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("created", Float, nullable=False),
    Column(
        "kind",
        String(20),
        nullable=False,
        doc="start, resume, import, isolation, sampling (what decides the distribution), scale (of objectives, for "
        "training), generation, prompt-shortened, edits-given-up, refresh (at which prompt), refreshed (what came of it), "
        "mutator-use (which version from now on), quarantine (a row that was set aside), problem-changed (what, and which "
        "programs are scored anew), fault or end",
    ),
    Column("data", JSON, nullable=False),
)
