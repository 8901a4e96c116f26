"""From row blocks to what is inferred of them: by EP, alone or in turn with Gibbs sampling, or by conjugate gradients.

Blocks that are lost on the way are made again, and work goes on.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from gphash.arrays import Floats, Signs
from gphash.execution.local import BlocksLostError, Executor
from gphash.method import collapse, conjugate, inference
from gphash.method.collapse import CodeCounts
from gphash.method.conjugate import Solved, Solver
from gphash.method.inference import SOLVERS
from gphash.method.partition import RowSource
from gphash.method.selection import Start
from gphash.method.state import Latent, Problem, Schedule, State, Sweep
from gphash.supervision.similarity import Signatures

R = TypeVar("R")
Note = Callable[[State | None, Sweep | None], None]

CHOICES = ("auto", *SOLVERS, "conjugate")
MANY = 2000  # inducing inputs; conjugate gradients take over beyond,
LITTLE = 0.05  # unless α is larger
JITTER = {"conjugate": 1e-5}  # of the prior: products with plain kernel values round more than those with Phi
NOISE = 0.1  # variance of what least squares sees, as a share of the prior's; of .01, .1 and 1, on training rows
MOST_LOSSES = 3  # of blocks, one after another without a sweep between them


class Answers(NamedTuple):
    """What Gaussian processes answer to fixed questions: by EP and, if questions are classes, by least squares too."""

    mean: Floats  # of the whitened inducing values, [r, q] or [r, 2 q]
    left_out: Floats  # leave-one-out means of some rows, [s, q] or [s, 2 q]


class Drawn(NamedTuple):
    """Codes that were sampled."""

    state: State  # after the last sweep
    counts: CodeCounts  # how often they occur
    left_out: Floats  # leave-one-out z-scores γ of some rows, [s, m]


def solver(asked_for: str, n_inducing: int, power: float, fixed: bool) -> str:
    """The solver by its name; conjugate gradients are for fixed questions only, and their α is 0."""
    if asked_for == "auto":
        return "conjugate" if fixed and n_inducing > MANY and power <= LITTLE else "shared"
    if asked_for == "conjugate" and not fixed:
        raise ValueError("solver='conjugate' is for labels and tags with codes='posterior'; give 'auto' or 'shared'.")
    return asked_for


def persist(work: Callable[[], R]) -> R:
    """Do work that can be done again when blocks are lost."""
    for _ in range(MOST_LOSSES):
        try:
            return work()
        except BlocksLostError:
            continue
    return work()


def alternate(
    source: RowSource,
    problem: Problem,
    begun: tuple[Start | None, State | None],
    max_sweeps: int,
    note: Note,
    codes: Callable[[int], Signs | None] | None,
    lap: Callable[[str], None],
) -> Answers | Drawn:
    """EP, alone or in turn with Gibbs sampling, from the start of the codes, or from a state between two sweeps.

    `note` is told of the first state and of every sweep; `codes` gives those of a lost block as they were kept.
    """
    start, state = begun
    if state is None:
        state = persist(lambda: source.first_state(source.mended(problem), start))
        note(state, None)
        lap("first codes" if source.answers is None else "coarse model")
    latest, executor = state, source.executor

    def work(further: Callable[[], None]) -> Answers | Drawn:
        nonlocal problem, latest

        def remember(state: State, sweep: Sweep) -> None:
            nonlocal latest
            latest = state
            further()
            note(state, sweep)

        problem, latest = source.recovered(problem, latest, start, codes)
        ended = inference.run(problem, latest, Schedule(max_sweeps), executor, remember, source.solver)
        return _ended(source, problem, inference.finish(problem, ended, executor))

    found = _survived(work)
    lap("sweeps")
    return found


def solve(source: RowSource, problem: Problem, seed: int, note: Note, lap: Callable[[str], None]) -> Answers:
    """Answers to fixed questions by conjugate gradients: by Laplace's method and, of classes, by least squares.

    `note` is told of every step.
    """
    executor, blocks, asked, answers = source.executor, source.partition.blocks, source.partition.asked, source.answers
    assert answers is not None
    told, n_questions = [answers[rows] for rows in blocks], answers.shape[1]
    n_folds = conjugate.count_folds(sum(len(blocks[number]) for number in asked), len(source.partition.order))
    dealt = [n_folds if number in asked else 0 for number in range(len(blocks))]
    seeds = [(seed, 46, number) for number in range(len(blocks))]

    found: list[Solved] = []
    begun: tuple[int, Floats | None] = 0, None

    def work(further: Callable[[], None]) -> None:
        nonlocal problem
        problem = source.mended(problem)
        own = executor.map(lambda _, *each: conjugate.deal(*each), problem.rows, told, dealt, seeds)
        solver = Solver(problem.rows, own, asked, (n_questions, n_folds), source.prior, executor)

        def remember(sweep: Sweep, mean: Floats) -> None:
            nonlocal begun
            begun = sweep.number, mean
            further()
            note(None, sweep)

        if not found:
            found.append(solver.laplace(remember, begun))
            further()
            lap("sweeps")
        if (precision := _squares(source)) is not None:
            found.append(solver.least_squares(precision))
            lap("least squares")

    _survived(work)
    return Answers(*(np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)))


def _survived(work: Callable[[Callable[[], None]], R]) -> R:
    """Do work that goes on where it was when blocks are lost; it calls what it is given when it has come further."""
    losses = 0

    def further() -> None:
        nonlocal losses
        losses = 0

    while True:
        try:
            return work(further)
        except BlocksLostError as error:
            losses += 1
            if losses > MOST_LOSSES:
                raise
            warnings.warn(f"{error}; its blocks are made again, and training goes on.", RuntimeWarning, stacklevel=4)


def _ended(source: RowSource, problem: Problem, state: State) -> Answers | Drawn:
    """What EP has come to."""
    asked, executor = source.partition.asked, source.executor
    if source.answers is None:
        scores = inference.left_out_scores(problem, state, asked, executor)
        return Drawn(state, _tally(problem, state.latents, executor), scores)
    found = [(state.mean, inference.left_out_means(problem, state, asked, executor))]
    if (precision := _squares(source)) is not None:
        squares = inference.least_squares(problem, state, precision, executor)
        found.append((squares.mean, inference.left_out_means(problem, squares, asked, executor)))
    return Answers(*(np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)))


def _squares(source: RowSource) -> float | None:
    """The precision that least squares takes answers to be seen with; None if questions are tags, which lost by it.

    Least squares errs elsewhere than EP does, and a read-out of both is never much worse than one of the better, and
    often better than either.
    """
    exact = isinstance(source.supervision, Signatures) and source.supervision.exact
    return 1 / (NOISE * source.prior.kernel.diagonal) if exact else None


def _tally(problem: Problem, latents: Sequence[Latent], executor: Executor) -> CodeCounts:
    """How often codes occur, in all blocks."""
    tallies = list(
        executor.collect(lambda block, latent: collapse.count(latent.signs, block.signatures), problem.rows, latents)
    )
    return CodeCounts(*(np.concatenate(parts) for parts in zip(*tallies, strict=True)))
