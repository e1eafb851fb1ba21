"""How the small model is trained."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pytrace.models.edge.packing import MAX_TOKENS
from pytrace.training.training_settings import OptimizerSettings


class EdgeSettings(OptimizerSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the small model is trained."""

    learning_rate: Annotated[float, Meta(ge=1e-8, le=1)] = 1.5e-4
    warm_up: Annotated[float, Meta(ge=0, le=0.9)] = 0.05
    cooldown: Annotated[float, Meta(ge=1e-3, le=1)] = 0.2
    weight_decay: Annotated[float, Meta(ge=0, le=10)] = 0.01
    # Tokens per step, padding included.
    batch: Annotated[int, Meta(ge=MAX_TOKENS, le=1 << 20)] = 4_096
    # Layers, from below, that stay as they are.
    frozen_layers: Annotated[int, Meta(ge=0, le=100)] = 0
    # Share of the questions over several passages, and over one of Wikipedia, that no step reads: from these the answer extractor
    # learns what the model's scores count (`benches.train_reader`).
    kept_back: Annotated[float, Meta(ge=0, le=0.9)] = 0.2
    # Share of the base's weights in those that are written, for a training that goes on from another: the mean of two keeps what both
    # know (Wortsman et al., "Robust fine-tuning of zero-shot models", 2022).
    base_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    # Share of the questions that each pass reads: fewer where claims should weigh more.
    questions: Annotated[float, Meta(ge=0, le=1)] = 1.0
    # Sources that no step reads, separated by commas; LingNLI, because it states no terms.
    leave_out: str = "lingnli"
    # Share of the first pass that has few wrong passages: short inputs teach more per second.
    easy: Annotated[float, Meta(ge=0, le=1)] = 0.25
    # Made by rule, per pass: questions over several passages, and claims of sentences, of facts and of answered questions, and links.
    made_questions: Annotated[int, Meta(ge=0, le=1_000_000)] = 5_000
    composed_questions: Annotated[int, Meta(ge=0, le=1_000_000)] = 2_000
    made_claims: Annotated[int, Meta(ge=0, le=1_000_000)] = 3_000
    made_statements: Annotated[int, Meta(ge=0, le=1_000_000)] = 16_000
    made_answers: Annotated[int, Meta(ge=0, le=1_000_000)] = 10_000
    made_links: Annotated[int, Meta(ge=0, le=1_000_000)] = 2_000
    # How often each question that needs several passages is read per pass, with other distractors.
    hop_repeats: Annotated[int, Meta(ge=1, le=100)] = 3
    # Steps between two looks at the held-out loss.
    judge_steps: Annotated[int, Meta(ge=1, le=1 << 30)] = 250
